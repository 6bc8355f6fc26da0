"""Attempts that are programs: each gets a process tree of its own, inside its own boundary."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from rota.execution import environment
from rota.execution.attempt_outcome import (
    asked_to_end,
    node_stopped,
    outcome_of_tree,
    result_too_large,
    with_result,
)
from rota.execution.attempts import ProcessLimit, RunnerParts
from rota.execution.isolation.process_tree import ProcessTree, TreeEnd
from rota.execution.isolation.tree_order import TreeSpec
from rota.execution.kinds.kind import ProgramKind
from rota.execution.kinds.registry import KINDS
from rota.execution.live_attempt import LiveAttempt
from rota.execution.log_writer import OutputPipe
from rota.logger import log
from rota.model.states import Outcome
from rota.model.work import RESULT_MAX, Attempt, AttemptEnd, Bounds


@dataclass(slots=True, eq=False)
class Programs:
    """The attempts that are programs, waiting and running."""

    parts: RunnerParts
    process_limit: ProcessLimit
    node: Mapping[str, str]
    _waiting: deque[LiveAttempt] = field(default_factory=deque)
    _running: dict[Program, asyncio.Task[None]] = field(default_factory=dict)

    def add(self, live: LiveAttempt) -> None:
        self._waiting.append(live)

    def pump(self) -> None:
        while self._waiting:
            if self._waiting[0].over:
                self._waiting.popleft()
            elif self.process_limit.take(self):
                program = Program(self.parts, self._waiting.popleft(), self.node)
                self._running[program] = self.parts.loop.create_task(self._run(program))
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
            log.exception("program.lost", attempt=label_of(program.live.attempt))
            program.kill()
            self.parts.attempts.end(
                program.live, AttemptEnd(Outcome.LOST, message=f"a fault in this node: {error}"), None
            )
        finally:
            del self._running[program]
            self.process_limit.give_back()


@dataclass(slots=True, eq=False)
class Program:
    """The program of one attempt."""

    parts: RunnerParts
    live: LiveAttempt
    node: Mapping[str, str]
    _folder: Path | None = None
    _tree: ProcessTree | None = None
    _is_killed: bool = False

    def __post_init__(self) -> None:
        self.live.process = self

    async def run(self) -> None:
        """Start the program, and return when all its processes are gone."""
        parts, live = self.parts, self.live
        label = label_of(live.attempt)
        try:
            self._tree = await parts.process_trees.start(self._spec(label))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
            self._forget_folder()
            parts.attempts.end(live, self._unstarted(error, label), None)
            return
        pipe = OutputPipe(self._tree.output, parts.loop, parts.log_writer, self._printed)
        parts.attempts.started(live, parts.loop.time())
        if self._is_killed:
            self._tree.kill()
        end = await self._tree.ended()
        ended_s = parts.loop.time()
        pipe.close()
        parts.attempts.end(live, self._outcome(end)._replace(late_s=end.late_s), ended_s)
        self._forget_folder()

    def stop(self, live: LiveAttempt) -> None:
        if self._tree is not None:
            self._tree.signal(signal.SIGTERM)

    def terminate(self, live: LiveAttempt) -> None:
        """Do nothing: `stop` has sent SIGTERM already."""

    def kill(self, live: LiveAttempt | None = None) -> None:
        """Kill the program: it did not stop (`live`), or the runner closes."""
        self._is_killed = True
        if self._tree is not None:
            self._tree.kill()

    def _spec(self, label: str) -> TreeSpec:
        attempt = self.live.attempt
        kind = KINDS.find(attempt.spec.runner)
        assert isinstance(kind, ProgramKind)
        self._folder = self.parts.work_folders.make(attempt.spec.bounds.user, "work")
        return TreeSpec(
            argv=tuple(kind.argv(attempt.spec.config)),
            env=environment.of_program(attempt, self.node, str(self._folder / "result")),
            bounds=self._placed(self._folder),
            hold_s=attempt.spec.hold_s,
            label=label,
        )

    def _placed(self, folder: Path) -> Bounds:
        """The bounds of the attempt, with an empty folder to work in if it names none."""
        bounds = self.live.attempt.spec.bounds
        if bounds.directory is not None:
            return bounds
        return replace(bounds, directory=str(folder / "work"))

    def _printed(self, data: bytes) -> None:
        self.parts.attempts.print(self.live, data)

    def _unstarted(self, error: Exception, label: str) -> AttemptEnd:
        if self.live.stop_reason is not None:
            return AttemptEnd(self.live.stop_reason, "cancel", "was cancelled at its start")
        return node_stopped() if self._is_killed else self.parts.not_started(error, label)

    def _outcome(self, end: TreeEnd) -> AttemptEnd:
        live = self.live
        if end.leftovers:
            self._printed(b"[rota: %d processes outlived the program; they were killed]\n" % end.leftovers)
        if live.stop_reason is not None and not end.killed_by_switch:
            how = "ended by SIGTERM" if end.signal == signal.SIGTERM else "was killed"
            return asked_to_end(
                live.attempt, live.stop_reason, how if end.code is None else f"stopped with exit code {end.code}"
            )
        if self._is_killed:
            return node_stopped()
        outcome = outcome_of_tree(end, live.attempt.spec.bounds, "the program")
        if outcome.outcome is not Outcome.SUCCEEDED:
            return outcome
        assert self._folder is not None
        return _with_result(self._folder / "result")._replace(code=0)

    def _forget_folder(self) -> None:
        if self._folder is None:
            return
        with suppress(OSError):
            (self._folder / "result").unlink(missing_ok=True)
            (self._folder / "work").rmdir()
        self.parts.work_folders.remove(self._folder)


def label_of(attempt: Attempt) -> str:
    return f"run-{attempt.run_id}.item-{attempt.item_id}.attempt-{attempt.attempt}"


def _with_result(path: Path) -> AttemptEnd:
    """Success, with what the program wrote as its result, if anything.

    The file is not trusted: no link is followed, and only a regular file of the folder's owner is read. A hard link to
    the file of another user is not.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return with_result(None)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != path.parent.stat().st_uid:
            return with_result(None)
        if found.st_size > RESULT_MAX:
            return result_too_large(found.st_size)
        text = os.read(file, RESULT_MAX).decode(errors="surrogateescape").strip()
    finally:
        os.close(file)
    return with_result(text or None)
