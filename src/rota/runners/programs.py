"""Programs: every attempt has a process tree of its own, inside its own boundary."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import structlog
from msgspec.structs import replace

from rota.model.states import Outcome
from rota.model.work import RESULT_MAX, Attempt, Bounds
from rota.runners import environment
from rota.runners.boundary.order import TreeSpec
from rota.runners.boundary.tree import Tree, TreeEnd
from rota.runners.endings import Ending, asked, checked, of_tree, stopped, too_large
from rota.runners.live import Live
from rota.runners.pipe import Pipe
from rota.runners.room import Room
from rota.runners.shop import Shop

log = structlog.get_logger()


class Programs:
    """The attempts that are programs, waiting and running."""

    def __init__(self, shop: Shop, room: Room, node: Mapping[str, str]) -> None:
        self._shop = shop
        self._room = room
        self._node = node
        self._waiting: deque[Live] = deque()
        self._running: dict[Program, asyncio.Task[None]] = {}

    def add(self, live: Live) -> None:
        self._waiting.append(live)

    def pump(self) -> None:
        while self._waiting:
            if self._waiting[0].over:
                self._waiting.popleft()
            elif self._room.take(self):
                program = Program(self._shop, self._waiting.popleft(), self._node)
                self._running[program] = self._shop.loop.create_task(self._run(program))
            else:
                return

    def kill(self) -> None:
        self._waiting.clear()
        for program in self._running:
            program.kill()

    async def see_gone(self) -> None:
        if self._running:
            await asyncio.wait(self._running.values())

    async def _run(self, program: Program) -> None:
        try:
            await program.run()
        except Exception as error:
            log.exception("a program was lost", attempt=label_of(program.live.attempt))
            program.kill()
            self._shop.desk.end(program.live, Ending(Outcome.LOST, message=f"a fault in this node: {error}"), None)
        finally:
            del self._running[program]
            self._room.give_back()


class Program:
    """One program."""

    def __init__(self, shop: Shop, live: Live, node: Mapping[str, str]) -> None:
        self._shop = shop
        self.live = live
        self._node = node
        self._folder: Path | None = None
        self._tree: Tree | None = None
        self._is_killed = False
        live.place = self

    async def run(self) -> None:
        """From start to end."""
        shop, live = self._shop, self.live
        label = label_of(live.attempt)
        try:
            self._tree = await shop.yard.start(self._spec(label))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            self._forget_folder()
            shop.desk.end(live, self._unstarted(error, label), None)
            return
        pipe = Pipe(self._tree.output, shop.loop, shop.scribe, self._printed)
        shop.desk.started(live, shop.loop.time())
        if self._is_killed:
            self._tree.kill()
        end = await self._tree.ended()
        ended_s = shop.loop.time()
        pipe.close()
        shop.desk.end(live, self._ending(end)._replace(late_s=end.late_s), ended_s)
        self._forget_folder()

    def stop(self, live: Live) -> None:
        if self._tree is not None:
            self._tree.signal(signal.SIGTERM)

    def insist(self, live: Live) -> None:
        """The first word was a signal."""

    def kill(self, live: Live | None = None) -> None:
        """Kill it, because it did not stop (`live`), or because the crew closes."""
        self._is_killed = True
        if self._tree is not None:
            self._tree.kill()

    def _spec(self, label: str) -> TreeSpec:
        attempt = self.live.attempt
        argv = attempt.config.get("argv")
        assert isinstance(argv, list)
        self._folder = self._shop.workplaces.make(attempt.bounds.user, "work")
        return TreeSpec(
            argv=tuple(str(argument) for argument in argv),
            env=environment.of_program(attempt, self._node, str(self._folder / "result")),
            bounds=self._placed(self._folder),
            hold_s=attempt.hold_s,
            label=label,
        )

    def _placed(self, folder: Path) -> Bounds:
        """Its bounds, with an empty folder to work in if it names none."""
        bounds = self.live.attempt.bounds
        if bounds.directory is not None:
            return bounds
        return replace(bounds, directory=str(folder / "work"))

    def _printed(self, data: bytes) -> None:
        self._shop.desk.print(self.live, data)

    def _unstarted(self, error: Exception, label: str) -> Ending:
        if self.live.why is not None:
            return Ending(self.live.why, "cancel", "was cancelled at its start")
        return stopped() if self._is_killed else self._shop.unstarted(error, label)

    def _ending(self, end: TreeEnd) -> Ending:
        live = self.live
        if end.leftovers:
            self._printed(b"[rota: %d processes outlived the program; they were killed]\n" % end.leftovers)
        if live.why is not None and not end.killed_by_switch:
            how = "ended by SIGTERM" if end.signal == signal.SIGTERM else "was killed"
            return asked(live.attempt, live.why, how if end.code is None else f"stopped with exit code {end.code}")
        if self._is_killed:
            return stopped()
        ending = of_tree(end, live.attempt.bounds, "the program")
        if ending.outcome is not Outcome.SUCCEEDED:
            return ending
        assert self._folder is not None
        return _with_result(self._folder / "result")._replace(code=0)

    def _forget_folder(self) -> None:
        if self._folder is None:
            return
        with suppress(OSError):
            (self._folder / "result").unlink(missing_ok=True)
            (self._folder / "work").rmdir()
        self._shop.workplaces.remove(self._folder)


def label_of(attempt: Attempt) -> str:
    return f"run-{attempt.run_id}.item-{attempt.item_id}.attempt-{attempt.attempt}"


def _with_result(path: Path) -> Ending:
    """A success, with what the program wrote as its result, if it did. It is a stranger's file: no links are followed,
    and nothing but a plain file of whoever has the folder is read: a second name of another's file is not."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return checked(None)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != path.parent.stat().st_uid:
            return checked(None)
        if found.st_size > RESULT_MAX:
            return too_large(found.st_size)
        text = os.read(file, RESULT_MAX).decode(errors="surrogateescape").strip()
    finally:
        os.close(file)
    return checked(text or None)
