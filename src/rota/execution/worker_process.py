"""One worker process as the agent sees it: sends it orders, receives its reports, waits for its end.

    starting ──ready──> at work ──idle, app changed, not needed──> retiring ──> gone
        `── cannot load, dead, too slow ──> gone    `── killed, broke the protocol, dead ──> gone

The worker is not trusted: whatever it sends, the agent uses bounded memory and reports each attempt once.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rota.execution.attempt_outcome import (
    WorkerEnd,
    asked_to_end,
    bounded_text,
    outcome_in_worker,
    printable,
    reported_failure,
    start_failure,
    with_result,
)
from rota.execution.attempts import RunnerParts
from rota.execution.file_versions import FileVersion
from rota.execution.isolation.process_tree import ProcessTree, TreeEnd
from rota.execution.isolation.tree_order import TreeSpec
from rota.execution.live_attempt import LiveAttempt
from rota.execution.log_writer import OutputPipe
from rota.execution.worker_link import WorkerLink
from rota.execution.worker_protocol import (
    MAIN,
    Orders,
    ProtocolViolation,
    Setup,
    WorkerReport,
    order_of,
)
from rota.logger import log
from rota.model.states import Outcome
from rota.model.work import AttemptEnd

if TYPE_CHECKING:
    from rota.execution.worker_pool import Route, WorkerPool


START_S = 60.0
"""How long a worker may take to load its app, and to begin with what it is given."""
RETIRE_S = 2.0
"""How long a worker without work may take to end."""
EXIT_S = 0.5
"""How long a worker that has closed its channel may take to end by itself, so that its exit code is seen."""
_READY, _GONE = 0, 1
"""What a worker should be when its timer comes."""
FILES_MAX = 1000
"""How many files of a worker are watched for changes."""
PATH_MAX = 4096
TAIL = 2000
"""How much is kept of what a worker prints when it has nothing to do."""
_LEFT = "[rota: the task left {} behind; its worker was killed with them]\n"
_SHARED = b"[rota: printed by the process that runs this item and others at a time]\n"


class WorkerProcess:
    """A worker process. Its pool gives it no more attempts than `room`."""

    def __init__(
        self, parts: RunnerParts, pool: WorkerPool, spec: TreeSpec, setup: Setup, files: dict[str, FileVersion]
    ) -> None:
        self.files = files
        """The files that it has loaded or will load, each with the version that it had at the latest before that."""
        self.capacity = setup.concurrency
        self.idle_since = parts.loop.time()
        self.given_since = 0.0
        self.is_ready = False
        self.is_retiring = False
        self.over = False
        self._parts = parts
        self._pool = pool
        self._spec = spec
        self._setup = setup
        self._lives: dict[int, LiveAttempt] = {}
        self._last = 0
        self._known: set[int] = set()
        self._held: list[tuple[LiveAttempt, AttemptEnd, float]] = []
        """Attempts that have ended and left something behind: they are reported when the process is gone with it."""
        self._tree: ProcessTree | None = None
        self._link: WorkerLink | None = None
        self._pipe: OutputPipe | None = None
        self._tail = b""
        self._left = ""
        self._wrong: str | None = None
        self._broken: AttemptEnd | None = None
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
        return any(live.started_s is not None for live in self._lives.values())

    async def run(self) -> None:
        """Start the process, and return when it is gone."""
        try:
            await self._run()
        except Exception as error:
            log.exception("worker.lost", worker=self._spec.label)
            self._abandon(AttemptEnd(Outcome.LOST, message=f"a fault in this node: {error}"))

    async def _run(self) -> None:
        if self._spec.bounds.directory is not None:
            return await self._run_tree()
        try:
            folder = self._parts.work_folders.make(self._spec.bounds.user)
        except OSError as error:
            return self._unstarted(error)
        self._spec = replace(self._spec, bounds=replace(self._spec.bounds, directory=str(folder)))
        self._setup = replace(self._setup, folder="" if self._setup.shared else str(folder))
        try:
            await self._run_tree()
        finally:
            self._parts.work_folders.remove(folder)

    async def _run_tree(self) -> None:
        try:
            self._tree = await self._parts.process_trees.start(self._spec)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
            self._unstarted(error)
            return
        self._attach(self._tree)
        if self._is_killed:
            self._tree.kill()
        self._gone(await self._tree.ended())

    def _unstarted(self, error: Exception) -> None:
        self.over = True
        self._pool.gone(self, None if self.is_retiring else self._parts.not_started(error, self._spec.label))

    def give(self, lives: Sequence[tuple[LiveAttempt, Route]]) -> None:
        """Give attempts to the worker, all in one frame."""
        self.given_since = self._parts.loop.time()
        tasks = []
        orders = []
        number = self._last
        for live, route in lives:
            number += 1
            live.process = self
            live.number = number
            self._lives[number] = live
            config = live.attempt.spec.config if route.sends_config else None
            orders.append(order_of(live.attempt, number, route.task.number, config))
            if route.task.number not in self._known:
                self._known.add(route.task.number)
                tasks.append(route.task)
        self._last = number
        assert self._link is not None
        self._link.send(Orders(tasks, orders, []))

    def stop(self, live: LiveAttempt) -> None:
        if self._link is not None:
            self._link.send(Orders([], [], [live.number]))

    def terminate(self, live: LiveAttempt) -> None:
        """Send SIGTERM to a function in code that sees no exception, and to all that it has started. A function that
        has seen the exception may be cleaning up, so it gets none; with other items in the worker it would hit these
        too."""
        if live.where == MAIN and not live.is_stopping and self._tree is not None and not self._setup.shared:
            self.is_retiring = True  # whatever the signal hits, it must not be another item
            self._tree.signal(signal.SIGTERM)

    def kill(self, live: LiveAttempt | None = None) -> None:
        """Kill the process, with all items in it."""
        self.is_retiring = True
        self._is_killed = True
        self._is_forced = self._is_forced or live is not None
        if self._tree is not None:
            self._tree.kill()

    def retire(self) -> None:
        """End the process as soon as it has nothing to do."""
        self.is_retiring = True
        if self.busy == 0 and self._link is not None:
            self._link.end()
            self._parts.timers.at(self._parts.loop.time() + RETIRE_S, self, _GONE)
        elif self._tree is None:
            self.kill()

    def on_timer(self, expected: int) -> None:
        """Kill the process if it is not ready, or not gone, in time."""
        if expected == _GONE:
            self.kill()
        elif not self.is_ready:
            self.give_up("was not ready")

    def give_up(self, what: str) -> None:
        """Kill a worker that does not do what it should, and report that of its attempts."""
        self._wrong = self._wrong or f"the worker {what} within {START_S:g} s"
        self.kill()

    def _attach(self, tree: ProcessTree) -> None:
        parts = self._parts
        assert tree.channel is not None
        self._pipe = OutputPipe(tree.output, parts.loop, parts.log_writer, self._printed)
        self._link = WorkerLink(tree.channel, parts.loop, self._on_report, self._cut_off)
        self._link.send(self._setup)
        parts.timers.at(parts.loop.time() + START_S, self, _READY)

    def _cut_off(self, why: str | None) -> None:
        """The worker has closed its channel or broken the protocol (`why`): nothing may run in it any more."""
        self._wrong = self._wrong or why
        if why is not None:
            self.is_retiring = True
            self._force()
        elif not self.over and (self.busy or not self.is_retiring):
            self._parts.loop.call_later(EXIT_S, self._force)

    def _force(self) -> None:
        if self._tree is not None and not self.over:
            self._tree.kill()

    def _on_report(self, report: WorkerReport) -> None:
        now = self._parts.loop.time()
        if report.ready and not self.is_ready:
            self.is_ready = True
            self.idle_since = now
            self._pool.freed(self)
        if report.broken is not None:
            self._broken = AttemptEnd(
                Outcome.FAILED, bounded_text(report.broken.cause), bounded_text(report.broken.message)
            )
        for number in report.stopping:
            self._lives[number].is_stopping = True
        for file, look in report.files[: max(0, FILES_MAX - len(self.files))]:
            self.files.setdefault(_checked_path(file), look)
        for number, at_s, where in report.started:
            live = self._lives[number]
            live.where = where
            if live.started_s is None:
                self._parts.attempts.started(live, at_s if 0 < at_s <= now else now)
        for number, data in report.output:
            self._parts.attempts.print(self._lives[number], data)
        if report.done or report.failed:
            self._on_ends(report, now)
        if report.spent and not self.is_retiring:
            self.retire()

    def _on_ends(self, report: WorkerReport, now: float) -> None:
        if self._pipe is not None:
            self._pipe.drain()
        ends: list[tuple[LiveAttempt, AttemptEnd, float]] = []
        try:
            for number, started_s, ended_s, result in report.done:
                ends.append(self._ended(number, started_s, ended_s, now, with_result(result)))
            for each in report.failed:
                end = self._ended(each.number, each.started_s, each.ended_s, now, reported_failure(each))
                ends.append(end)
            # First the next orders, then the reports: so the worker works meanwhile.
            self._left = self._left or report.left
            self._after_ends(now)
        finally:  # also when the worker named an attempt that it was never given
            if report.left:
                self._held += ends
            else:
                for end in ends:
                    self._parts.attempts.end(*end)

    def _ended(
        self, number: int, started_s: float | None, ended_s: float, now: float, outcome: AttemptEnd
    ) -> tuple[LiveAttempt, AttemptEnd, float]:
        """An attempt that its worker reports as ended. Instants that cannot be are replaced by now."""
        live = self._lives.pop(number)
        if started_s is not None and live.started_s is None:
            live.started_s = started_s if 0 < started_s <= now else now
        if not (live.started_s or 0) <= ended_s <= now:
            ended_s = now
        if live.stop_reason is not None and ended_s >= live.asked_s:
            outcome = asked_to_end(live.attempt, live.stop_reason, "stopped when it was told to")
        return live, outcome, ended_s

    def _after_ends(self, now: float) -> None:
        if self._left:
            self.is_retiring = True
            self._force()
            return
        if not self._lives:
            self.idle_since = now
            if self._spec.bounds.cpu_s is not None:
                self.is_retiring = True  # the limit counts for the process, so the next item gets a new one
            if self.is_retiring:
                self.retire()
                return
        if not self.is_retiring and not self.over:
            self._pool.freed(self)

    def _printed(self, data: bytes) -> None:
        """Keep what the process has printed. With several items in it nobody knows which one did: the first gets it."""
        live = next(iter(self._lives.values()), None)
        if live is None:
            self._tail = (self._tail + data)[-TAIL:]
            return
        if len(self._lives) > 1 and live.output is None:
            self._parts.attempts.print(live, _SHARED)
        self._parts.attempts.print(live, data)

    def _gone(self, end: TreeEnd) -> None:
        self.over = True
        assert self._link is not None
        assert self._pipe is not None
        self._link.close()
        self._pipe.close()
        now = self._parts.loop.time()
        for live, outcome, ended_s in self._held:
            self._parts.attempts.print(live, _LEFT.format(printable(self._left)).encode())
            self._parts.attempts.end(live, outcome._replace(late_s=end.late_s), ended_s)
        ended = WorkerEnd(end, self._is_killed, self._is_forced, self._left, self._wrong)
        several = len(self._lives) > 1
        lives, self._lives = list(self._lives.values()), {}
        for live in lives:
            outcome = outcome_in_worker(live, ended, several=several)
            self._parts.attempts.end(live, outcome._replace(late_s=end.late_s), now)
        unneeded = self.is_retiring and self._wrong is None
        failure = self._broken or start_failure(ended, self._spec.bounds, self._tail)
        self._pool.gone(self, None if self.is_ready or unneeded else failure)

    def _abandon(self, why: AttemptEnd) -> None:
        """After a fault of ours: kill the process and report every attempt, so that none is left without an end."""
        self.over = True
        if self._tree is not None:
            self._tree.kill()
        for live in (*self._lives.values(), *(live for live, _, _ in self._held)):
            self._parts.attempts.end(live, why, None)
        self._lives.clear()
        self._pool.gone(self, why)


def _checked_path(file: str) -> str:
    """Refuse a name that no file can have: the agent looks at these files again and again."""
    if "\0" in file or len(file) > PATH_MAX:
        raise ProtocolViolation("it names a file that cannot exist")
    return file
