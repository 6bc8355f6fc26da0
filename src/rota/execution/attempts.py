"""The attempts of a runner: each one that is added is reported as ended exactly once.

    add ──> waiting ──> in a process ──> started ──warn──> ... ──timeout or cancel──> asked to end ──grace──> killed
               `───────────`────────────────`──────────────────────────`───────────────────`──> ended

It sets the timers of each attempt, and reports starts and ends to the listener in batches. `RunnerParts` is what worker
processes and programs share besides, `ProcessLimit` bounds how many of them there are, `StartLimit` how many workers
load their apps at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rota.execution.attempt_outcome import node_unable, not_started
from rota.execution.isolation.process_trees import ProcessTrees
from rota.execution.live_attempt import KILL, TERMINATE, TIMEOUT, WARN, LiveAttempt
from rota.execution.log_writer import LogWriter
from rota.execution.timers import Timers
from rota.execution.work_folders import WorkFolders
from rota.model.run import LogKey
from rota.model.states import Outcome
from rota.model.work import Attempt, AttemptEnd
from rota.ports import Listener

REPORT_S = 0.005
"""How long a start may wait to be reported. An attempt that ends earlier is reported once, and needs no timer."""
SLOW_S = 2.0
"""Until then most apps are loaded, even on a busy host."""
LOG_WAIT_S = 2.0
"""How long the end of an attempt waits for its output to be written."""


@dataclass(eq=False, repr=False)
class AttemptTable:
    """The attempts that are waiting or running, and the ends that are not reported yet."""

    listener: Listener
    loop: asyncio.AbstractEventLoop
    timers: Timers
    log_writer: LogWriter
    _lives: dict[int, LiveAttempt] = field(default_factory=dict)
    _closing: set[_ClosingLog] = field(default_factory=set)
    _newly_started: dict[int, LiveAttempt] = field(default_factory=dict)
    _ended: list[AttemptEnd] = field(default_factory=list)
    _reporting: bool = False

    @property
    def live(self) -> Sequence[LiveAttempt]:
        return list(self._lives.values())

    @property
    def unreported(self) -> set[tuple[int, int]]:
        """The attempts (item, token) whose end was not reported yet."""
        lives = [*self._lives.values(), *(it.live for it in self._closing)]
        return {(live.attempt.item_id, live.attempt.token) for live in lives}

    def add(self, attempt: Attempt) -> LiveAttempt | None:
        """Add an attempt. If another attempt at the same item is still here, report it as lost and return none."""
        live = LiveAttempt(attempt, self._on_step)
        if attempt.item_id in self._lives:
            self._report_end(
                live, AttemptEnd(Outcome.LOST, message="an earlier attempt at this item is still ending here"), None
            )
            return None
        self._lives[attempt.item_id] = live
        return live

    def started(self, live: LiveAttempt, at_s: float) -> None:
        """Its first line has run: its timeout counts from `at_s`."""
        live.started_s = at_s
        if not self._newly_started:
            self.loop.call_later(REPORT_S, self._report_starts)
        self._newly_started[live.attempt.item_id] = live
        if live.stop_reason is not None and live.process is not None:
            live.process.stop(live)

    def print(self, live: LiveAttempt, data: bytes) -> None:
        """Keep what the attempt has printed."""
        if live.output is None:
            attempt = live.attempt
            live.output = self.log_writer.output(LogKey(attempt.run_id, attempt.item_id, attempt.attempt))
        live.output.add(data)

    def ask_to_end(self, live: LiveAttempt, why: Outcome) -> None:
        """Ask it to end; signal it after half of its grace, kill it after all of it."""
        if live.stop_reason is not None:
            return
        live.stop_reason = why
        live.asked_s = self.loop.time()
        if live.process is None:
            self.end(live, AttemptEnd(why, "cancel", "was cancelled before it started"), None)
            return
        live.process.stop(live)
        self._set(live, live.asked_s + live.attempt.spec.grace_s / 2, TERMINATE)
        self._set(live, live.asked_s + live.attempt.spec.grace_s, KILL)

    def cancel(self, item_id: int) -> None:
        if (live := self._lives.get(item_id)) is not None:
            self.ask_to_end(live, Outcome.CANCELLED)

    def end(self, live: LiveAttempt, outcome: AttemptEnd, ended_s: float | None) -> None:
        """Report its end, after its output was written if that takes no longer than LOG_WAIT_S."""
        if live.over:
            return
        live.over = True
        self._lives.pop(live.attempt.item_id, None)
        self._newly_started.pop(live.attempt.item_id, None)
        if live.timers_set:
            self.timers.dropped(live.timers_set)
        if live.output is None:
            self._report_end(live, outcome, ended_s)
        else:
            self._closing.add(_ClosingLog(self, live, outcome, ended_s or self.loop.time()))

    def report_ends(self) -> None:
        self._reporting = False
        ended, self._ended = self._ended, []
        if ended:
            self.listener.ended(ended)

    def close(self) -> None:
        """Report every end now, also of attempts whose output is still being written."""
        for closing in list(self._closing):
            closing.on_timer(0)
        self.report_ends()

    def close_log(self, closing: _ClosingLog) -> None:
        self.timers.at(self.loop.time() + LOG_WAIT_S, closing)

    def closed_log(
        self, closing: _ClosingLog, live: LiveAttempt, outcome: AttemptEnd, ended_s: float, size: int
    ) -> None:
        self._closing.discard(closing)
        self.timers.dropped()
        self._report_end(live, outcome, ended_s, size)

    def _report_end(self, live: LiveAttempt, outcome: AttemptEnd, ended_s: float | None, log_bytes: int = 0) -> None:
        attempt = live.attempt
        how, cause, message, code, result, late_s, *_ = outcome  # `_replace` would take three times as long
        over_s = self.loop.time() if ended_s is None else ended_s
        whose = (attempt.item_id, attempt.attempt, live.started_s, over_s, log_bytes)
        self._ended.append(AttemptEnd(how, cause, message, code, result, late_s, *whose))
        self._report_soon()

    def _report_starts(self) -> None:
        """Report what has started and still runs, and set its timers."""
        started, self._newly_started = self._newly_started, {}
        for live in started.values():
            self._watch(live)
        if started:
            self.listener.started(
                [(item_id, live.attempt.attempt, live.started_s or 0.0) for item_id, live in started.items()]
            )

    def _watch(self, live: LiveAttempt) -> None:
        attempt = live.attempt
        started_s = live.started_s or 0.0
        if attempt.spec.timeout_s is not None:
            self._set(live, started_s + attempt.spec.timeout_s, TIMEOUT)
        if attempt.spec.warn_s is not None:
            self._set(live, started_s + attempt.spec.warn_s, WARN)

    def _report_soon(self) -> None:
        if not self._reporting:
            self._reporting = True
            self.loop.call_soon(self.report_ends)

    def _set(self, live: LiveAttempt, when: float, step: int) -> None:
        live.timers_set += 1
        self.timers.at(when, live, step)

    def _on_step(self, live: LiveAttempt, step: int) -> None:
        attempt = live.attempt
        if step == WARN:
            message = f"takes longer than {attempt.spec.warn_s or 0:g} s"
            self.listener.warned(attempt.item_id, attempt.attempt, message)
        elif step == TIMEOUT:
            self.ask_to_end(live, Outcome.TIMED_OUT)
        elif step == TERMINATE and live.process is not None:
            live.process.terminate(live)
        elif live.process is not None:
            live.process.kill(live)


class _ClosingLog:
    """An attempt that has ended, while its output is still being written."""

    __slots__ = ("_attempts", "_ended_s", "_outcome", "live", "over")

    def __init__(self, attempts: AttemptTable, live: LiveAttempt, outcome: AttemptEnd, ended_s: float) -> None:
        self.over = False
        self._attempts = attempts
        self.live = live
        self._outcome = outcome
        self._ended_s = ended_s
        assert live.output is not None
        live.output.finish(self._done)
        attempts.close_log(self)

    def on_timer(self, step: int) -> None:
        assert self.live.output is not None
        self._done(self.live.output.size)

    def _done(self, size: int) -> None:
        if not self.over:
            self.over = True
            self._attempts.closed_log(self, self.live, self._outcome, self._ended_s, size)


@dataclass(slots=True)
class RunnerParts:
    """Starts processes, reports attempts, writes output, sets timers and makes folders."""

    loop: asyncio.AbstractEventLoop
    process_trees: ProcessTrees
    attempts: AttemptTable
    log_writer: LogWriter
    timers: Timers
    work_folders: WorkFolders
    unable: Callable[[], str] = str
    """Returns why nothing can be started at present; an empty text if it can."""

    def not_started(self, error: Exception, label: str) -> AttemptEnd:
        outcome = not_started(error, label)
        if outcome.outcome is Outcome.LOST and (why := self.unable()):
            return node_unable(why)
        return outcome


class ProcessStarter(Protocol):
    """A pool of workers, or the programs: each starts processes."""

    def pump(self) -> None:
        """Start what waits; a place may be free now."""


class ProcessLimit:
    """At most `most` processes. Those that wait for a place get one in the order in which they came."""

    def __init__(self, most: int, evict: Callable[[], bool]) -> None:
        self._most = most
        self.used = 0
        self._evict = evict
        """Retires an idle worker; returns false if there is none."""
        self._retiring = 0
        """How many idle workers were retired to make room for those that wait."""
        self._waiting: dict[ProcessStarter, None] = {}

    def take(self, starter: ProcessStarter) -> bool:
        """Take a place. If there is none, retire an idle worker, let `starter` wait and return false."""
        if self.used < self._most:
            self.used += 1
            return True
        if starter in self._waiting:
            return False
        self._waiting[starter] = None
        if self._retiring < len(self._waiting) and self._evict():
            self._retiring += 1
        return False

    def should_free_one(self) -> bool:
        """True if a worker that has just become idle should retire, because another pool waits for its place."""
        if self._retiring >= len(self._waiting):
            return False
        self._retiring += 1
        return True

    def give_back(self) -> None:
        """A process is gone: its place is free for the next that waits."""
        self.used -= 1
        self._retiring = max(0, self._retiring - 1)
        for starter in list(self._waiting):
            if self.used >= self._most:
                break
            del self._waiting[starter]
            starter.pump()


class StartLimit:
    """At most `most` workers load their apps at a time: all at once they would take the processors from this node for
    so long that its lease could end. Who loads for longer than `SLOW_S` is not counted any more, so that an app that
    hangs holds up no others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._starting: set[object] = set()
        self._waiting: dict[ProcessStarter, None] = {}

    def has_room(self, starter: ProcessStarter) -> bool:
        """Whether a worker may be started now. If not, `starter` waits for its turn."""
        if len(self._starting) < self._most:
            return True
        self._waiting[starter] = None
        return False

    def began(self, worker: object, loop: asyncio.AbstractEventLoop) -> None:
        self._starting.add(worker)
        loop.call_later(SLOW_S, self.ended, worker)

    def ended(self, worker: object) -> None:
        """The worker is ready, gone or slow: the next that waits has its turn."""
        if worker not in self._starting:
            return
        self._starting.remove(worker)
        for starter in list(self._waiting):
            if len(self._starting) >= self._most:
                break
            del self._waiting[starter]
            starter.pump()
