"""One worker process as the agent sees it: gives it orders, hears its reports, sees it gone.

    starting ──ready──> at work ──idle, changed or not needed──> retiring ──> gone
        `── broken, dead, too slow ──> gone           `── killed, spoiled, dead ──> gone

The worker is not trusted: whatever it sends, the agent uses bounded memory and reports each attempt once.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Protocol

import structlog
from msgspec.structs import replace

from rota.model.moment import micros
from rota.model.states import Outcome
from rota.runners.boundary.order import TreeSpec
from rota.runners.boundary.tree import Tree, TreeEnd
from rota.runners.endings import Ending, asked, bounded, checked, of_tree, stopped, with_traceback
from rota.runners.link import Link
from rota.runners.live import Live
from rota.runners.pipe import Pipe
from rota.runners.shop import Shop
from rota.runners.stamps import Stamp
from rota.runners.wire import MAIN, Failure, Order, Orders, Report, Setup, SpoiledChannel, Task

log = structlog.get_logger()

START_S = 60.0
"""How long a worker may take to load its app, and to begin with what it is given."""
RETIRE_S = 2.0
LAST_WORDS_S = 0.5
"""How long a worker that has closed its channel may take to end by itself, so that its exit code is seen."""
_READY, _GONE = 0, 1
"""What a worker is expected to be when its timer rings."""
CODES = 1000
FILES_MAX = 1000
PATH_MAX = 4096
TAIL = 2000
"""How much is kept of what a worker prints when it has nothing to do."""
_LEFT = "[rota: the task left {} behind; its worker was killed with them]\n"
_LEFT_MAX = 200
_SHARED = b"[rota: printed by the process that runs this item and others at a time]\n"


class Boss(Protocol):
    """Who hires workers."""

    def freed(self, hand: Hand) -> None:
        """It is ready, or has room again."""
        ...

    def gone(self, hand: Hand, unborn: Ending | None) -> None:
        """It is no more; with a reason if it was never ready."""
        ...


class Hand:
    """A worker. Its boss gives it no more than it can take."""

    def __init__(self, shop: Shop, boss: Boss, spec: TreeSpec, setup: Setup, files: dict[str, Stamp]) -> None:
        self.files = files
        """What it has loaded or will load, and how that looked at the latest before it did."""
        self.capacity = setup.concurrency
        self.idle_since = shop.loop.time()
        self.given_since = 0.0
        self.is_ready = False
        self.is_retiring = False
        self.over = False
        self._shop = shop
        self._boss = boss
        self._spec = spec
        self._setup = setup
        self._lives: dict[int, Live] = {}
        self._last = 0
        self._known: set[int] = set()
        self._held: list[tuple[Live, Ending, float]] = []
        """Attempts that are over, while what they left behind is not: they are told of when that is gone too."""
        self._tree: Tree | None = None
        self._link: Link | None = None
        self._pipe: Pipe | None = None
        self._tail = b""
        self._left = ""
        self._wrong: str | None = None
        self._broken: Ending | None = None
        self._is_killed = False
        self._is_forced = False

    @property
    def busy(self) -> int:
        return len(self._lives)

    @property
    def room(self) -> int:
        return self.capacity - len(self._lives)

    @property
    def started(self) -> bool:
        """Whether any of its items has started."""
        return any(live.started_s is not None for live in self._lives.values())

    async def run(self) -> None:
        """Live from start to end."""
        try:
            await self._run()
        except Exception as error:
            log.exception("a worker was lost", worker=self._spec.label)
            self._abandon(Ending(Outcome.LOST, message=f"a fault in this node: {error}"))

    async def _run(self) -> None:
        if self._spec.bounds.directory is not None:
            return await self._live()
        try:
            folder = self._shop.workplaces.make(self._spec.bounds.user)
        except OSError as error:
            return self._unstarted(error)
        self._spec = replace(self._spec, bounds=replace(self._spec.bounds, directory=str(folder)))
        self._setup = replace(self._setup, folder="" if self._setup.shared else str(folder))
        try:
            await self._live()
        finally:
            self._shop.workplaces.remove(folder)

    async def _live(self) -> None:
        try:
            self._tree = await self._shop.yard.start(self._spec)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            self._unstarted(error)
            return
        self._attach(self._tree)
        if self._is_killed:
            self._tree.kill()
        self._gone(await self._tree.ended())

    def _unstarted(self, error: Exception) -> None:
        self.over = True
        self._boss.gone(self, None if self.is_retiring else self._shop.unstarted(error, self._spec.label))

    def give(self, lives: Sequence[tuple[Live, Task]]) -> None:
        """Hand over attempts, all in one frame."""
        self.given_since = self._shop.loop.time()
        tasks = []
        orders = []
        number = self._last
        for live, task in lives:
            number += 1
            live.place = self
            live.number = number
            self._lives[number] = live
            orders.append(_order(live, task))
            if task.number not in self._known:
                self._known.add(task.number)
                tasks.append(task)
        self._last = number
        assert self._link is not None
        self._link.send(Orders(tasks, orders, []))

    def stop(self, live: Live) -> None:
        if self._link is not None:
            self._link.send(Orders([], [], [live.number]))

    def insist(self, live: Live) -> None:
        """A function that is in code that sees no exception gets the signal, with all that it has started; one that
        has seen it may be busy cleaning up. In a worker with other items that would hit these too."""
        if live.where == MAIN and not live.is_stopping and self._tree is not None and not self._setup.shared:
            self.is_retiring = True  # whatever the signal hits, it must not be another item
            self._tree.signal(signal.SIGTERM)

    def kill(self, live: Live | None = None) -> None:
        """Kill the process, with all items in it."""
        self.is_retiring = True
        self._is_killed = True
        self._is_forced = self._is_forced or live is not None
        if self._tree is not None:
            self._tree.kill()

    def retire(self) -> None:
        """End when there is nothing more to do."""
        self.is_retiring = True
        if self.busy == 0 and self._link is not None:
            self._link.end()
            self._shop.timers.at(self._shop.loop.time() + RETIRE_S, self, _GONE)
        elif self._tree is None:
            self.kill()

    def ring(self, what: int) -> None:
        """It should be ready, or gone, by now. One that retires is not gone while it has something to do."""
        if what == _GONE:
            self.kill()
        elif not self.is_ready:
            self.give_up("was not ready")

    def give_up(self, what: str) -> None:
        """It does not do what it was told."""
        self._wrong = self._wrong or f"the worker {what} within {START_S:g} s"
        self.kill()

    def _attach(self, tree: Tree) -> None:
        shop = self._shop
        assert tree.channel is not None
        self._pipe = Pipe(tree.output, shop.loop, shop.scribe, self._printed)
        self._link = Link(tree.channel, shop.loop, self._understand, self._cut_off)
        self._link.send(self._setup)
        shop.timers.at(shop.loop.time() + START_S, self, _READY)

    def _cut_off(self, why: str | None) -> None:
        """Nothing more is heard of it: so nothing more may happen in it."""
        self._wrong = self._wrong or why
        if why is not None:
            self.is_retiring = True
            self._force()
        elif not self.over and (self.busy or not self.is_retiring):
            self._shop.loop.call_later(LAST_WORDS_S, self._force)

    def _force(self) -> None:
        if self._tree is not None and not self.over:
            self._tree.kill()

    def _understand(self, report: Report) -> None:
        now = self._shop.loop.time()
        if report.ready and not self.is_ready:
            self.is_ready = True
            self.idle_since = now
            self._boss.freed(self)
        if report.broken is not None:
            self._broken = Ending(Outcome.FAILED, bounded(report.broken.cause), bounded(report.broken.message))
        for number in report.stopping:
            self._lives[number].is_stopping = True
        for file, look in report.files[: max(0, FILES_MAX - len(self.files))]:
            self.files.setdefault(_possible(file), look)
        for number, at_s, where in report.started:
            live = self._lives[number]
            live.where = where
            if live.started_s is None:
                self._shop.desk.started(live, at_s if 0 < at_s <= now else now)
        for number, data in report.output:
            self._shop.desk.print(self._lives[number], data)
        if report.done or report.failed:
            self._hear_ends(report, now)
        if report.spent and not self.is_retiring:
            self.retire()

    def _hear_ends(self, report: Report, now: float) -> None:
        if self._pipe is not None:
            self._pipe.drain()
        ends: list[tuple[Live, Ending, float]] = []
        try:
            for number, started_s, ended_s, result in report.done:
                ends.append(self._ended(number, started_s, ended_s, now, checked(result)))
            for each in report.failed:
                end = self._ended(each.number, each.started_s, each.ended_s, now, _failed(each))
                ends.append(end)
            # First the next orders, then the telling: so the worker works meanwhile.
            self._left = self._left or report.left
            self._after_ends(now)
        finally:  # also when one of the numbers was never given
            if report.left:
                self._held += ends
            else:
                for end in ends:
                    self._shop.desk.end(*end)

    def _ended(
        self, number: int, started_s: float | None, ended_s: float, now: float, ending: Ending
    ) -> tuple[Live, Ending, float]:
        """An attempt that its worker says is over, at instants that can be."""
        live = self._lives.pop(number)
        if started_s is not None and live.started_s is None:
            live.started_s = started_s if 0 < started_s <= now else now
        if not (live.started_s or 0) <= ended_s <= now:
            ended_s = now
        if live.why is not None and ended_s >= live.asked_s:
            ending = asked(live.attempt, live.why, "stopped when it was told to")
        return live, ending, ended_s

    def _after_ends(self, now: float) -> None:
        if self._left:
            self.is_retiring = True
            self._force()
            return
        if not self._lives:
            self.idle_since = now
            if self._spec.bounds.cpu_s is not None:
                self.is_retiring = True  # the limit counts for the process: the next item gets a process of its own
            if self.is_retiring:
                self.retire()
                return
        if not self.is_retiring and not self.over:
            self._boss.freed(self)

    def _printed(self, data: bytes) -> None:
        """The process has printed something: its only item did, or nobody can say who."""
        live = next(iter(self._lives.values()), None)
        if live is None:
            self._tail = (self._tail + data)[-TAIL:]
            return
        if len(self._lives) > 1 and live.printed is None:
            self._shop.desk.print(live, _SHARED)
        self._shop.desk.print(live, data)

    def _gone(self, end: TreeEnd) -> None:
        self.over = True
        assert self._link is not None
        assert self._pipe is not None
        self._link.close()
        self._pipe.close()
        now = self._shop.loop.time()
        for live, ending, ended_s in self._held:
            self._shop.desk.print(live, _LEFT.format(_plain(self._left)).encode())
            self._shop.desk.end(live, ending._replace(late_s=end.late_s), ended_s)
        several = len(self._lives) > 1
        lives, self._lives = list(self._lives.values()), {}
        for live in lives:
            ending = self._ending(live, end, several=several)
            self._shop.desk.end(live, ending._replace(late_s=end.late_s), now)
        unneeded = self.is_retiring and self._wrong is None
        self._boss.gone(self, None if self.is_ready or unneeded else self._unborn(end))

    def _abandon(self, why: Ending) -> None:
        """A fault of ours must not leave an attempt without an end."""
        self.over = True
        if self._tree is not None:
            self._tree.kill()
        for live in (*self._lives.values(), *(live for live, _, _ in self._held)):
            self._shop.desk.end(live, why, None)
        self._lives.clear()
        self._boss.gone(self, why)

    def _ending(self, live: Live, end: TreeEnd, *, several: bool) -> Ending:
        if live.why is not None and not end.killed_by_switch:
            how = "ended by SIGTERM" if end.signal == signal.SIGTERM else "was killed"
            return asked(live.attempt, live.why, how)
        if self._is_forced:
            text = "its worker was killed, because another item in it did not stop when it was told to"
            return Ending(Outcome.LOST, message=text)
        if self._is_killed and self._wrong is None:
            return stopped()
        if self._left:
            text = f"its worker was killed, because another item had left {_plain(self._left)} behind"
            return Ending(Outcome.LOST, message=text)
        ending = of_tree(end, live.attempt.bounds, "the worker process")
        if self._wrong is not None:
            ending = Ending(Outcome.FAILED, "channel", bounded(self._wrong))
        elif ending.outcome is Outcome.SUCCEEDED:
            text = "the worker process ended with exit code 0 before the function returned"
            ending = Ending(Outcome.FAILED, "0", text, 0)
        if several and ending.outcome is Outcome.FAILED:
            return Ending(Outcome.LOST, message=f"{ending.message}; which of its items is to blame is not known")
        return ending

    def _unborn(self, end: TreeEnd) -> Ending:
        """Why it never worked."""
        if self._broken is not None:
            return self._broken
        ending = of_tree(end, self._spec.bounds, "the worker process")
        text = self._wrong or f"{ending.message or 'the worker process ended'} before it was ready"
        words = self._tail.decode(errors="replace").strip()
        outcome = ending.outcome if ending.outcome is Outcome.LOST and self._wrong is None else Outcome.FAILED
        return Ending(outcome, ending.cause or "start", bounded(f"{text}: {words}" if words else text))


def _order(live: Live, task: Task) -> Order:
    attempt = live.attempt
    return Order(
        live.number,
        task.number,
        attempt.item_id,
        attempt.attempt,
        attempt.token,
        attempt.run_id,
        attempt.index,
        attempt.idempotency_key,
        attempt.params or None,
        attempt.number,
        attempt.info,
        None if attempt.slot_at is None else micros(attempt.slot_at),
        attempt.config if task.runner == "http" else None,
    )


def _failed(failure: Failure) -> Ending:
    what = (bounded(failure.cause), bounded(failure.message), _small(failure.code))
    return Ending(Outcome.FAILED, *what, with_traceback(failure.traceback))


def _possible(file: str) -> str:
    """The name of a file, which is looked at again and again: one that no file can have was not loaded."""
    if "\0" in file or len(file) > PATH_MAX:
        raise SpoiledChannel("a file that cannot be")
    return file


def _plain(text: str) -> str:
    """What a worker says of a task, fit for a line."""
    return "".join(char if char.isprintable() else "?" for char in text[:_LEFT_MAX])


def _small(code: int | None) -> int | None:
    return code if code is not None and 0 <= code < CODES else None
