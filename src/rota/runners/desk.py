"""What a crew has taken on and what it tells: every attempt that comes in is reported as ended exactly once.

    begin ──> waiting ──> in a place ──> started ──warn──> ... ──timeout or cancel──> asked ──grace──> killed
                 `────────────`─────────────`──────────────────────────`────────────────`──> ended, told in batches

It keeps the ladder of each attempt and gathers what there is to tell until the event loop has run all that is ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rota.model.run import LogKey
from rota.model.states import Outcome
from rota.model.work import Attempt, AttemptEnd
from rota.ports import Listener
from rota.runners.endings import Ending
from rota.runners.live import INSIST, KILL, TERM, WARN, Live
from rota.runners.scribe import Scribe
from rota.runners.timers import Timers

TELL_S = 0.005
"""How long a start may wait to be told. What ends within that time is told of once, as ended, and needs no timer."""
LOG_WAIT_S = 2.0
"""How long the end of an attempt waits for its output to be written."""


class Desk:
    """Attempts in, ends out."""

    def __init__(self, listener: Listener, loop: asyncio.AbstractEventLoop, timers: Timers, scribe: Scribe) -> None:
        self._listener = listener
        self._loop = loop
        self._timers = timers
        self._scribe = scribe
        self._lives: dict[int, Live] = {}
        self._closing: set[_Closing] = set()
        self._fresh: dict[int, Live] = {}
        self._ended: list[AttemptEnd] = []
        self._telling = False

    @property
    def lives(self) -> Sequence[Live]:
        return list(self._lives.values())

    @property
    def untold(self) -> set[tuple[int, int]]:
        """The attempts (item, token) whose end was not told yet."""
        lives = [*self._lives.values(), *(it.live for it in self._closing)]
        return {(live.attempt.item_id, live.attempt.token) for live in lives}

    def take(self, attempt: Attempt) -> Live | None:
        """Take an attempt on, unless another attempt at the same item is still here."""
        live = Live(attempt, self._climb)
        if attempt.item_id in self._lives:
            self._tell_end(
                live, Ending(Outcome.LOST, message="an earlier attempt at this item is still ending here"), None
            )
            return None
        self._lives[attempt.item_id] = live
        return live

    def started(self, live: Live, at_s: float) -> None:
        """Its first line has run: from now on its time counts."""
        live.started_s = at_s
        if not self._fresh:
            self._loop.call_later(TELL_S, self._tell_starts)
        self._fresh[live.attempt.item_id] = live
        if live.why is not None and live.place is not None:
            live.place.stop(live)

    def print(self, live: Live, data: bytes) -> None:
        """It has printed something."""
        if live.printed is None:
            attempt = live.attempt
            live.printed = self._scribe.printed(LogKey(attempt.run_id, attempt.item_id, attempt.attempt))
        live.printed.take(data)

    def ask(self, live: Live, why: Outcome) -> None:
        """Make it end: by a word, then by force."""
        if live.why is not None:
            return
        live.why = why
        live.asked_s = self._loop.time()
        if live.place is None:
            self.end(live, Ending(why, "cancel", "was cancelled before it started"), None)
            return
        live.place.stop(live)
        self._set(live, live.asked_s + live.attempt.grace_s / 2, INSIST)
        self._set(live, live.asked_s + live.attempt.grace_s, KILL)

    def cancel(self, item_id: int) -> None:
        if (live := self._lives.get(item_id)) is not None:
            self.ask(live, Outcome.CANCELLED)

    def end(self, live: Live, ending: Ending, ended_s: float | None) -> None:
        """It is over. What it printed is written first, if that does not take too long."""
        if live.over:
            return
        live.over = True
        self._lives.pop(live.attempt.item_id, None)
        self._fresh.pop(live.attempt.item_id, None)
        if live.rungs:
            self._timers.dropped(live.rungs)
        if live.printed is None:
            self._tell_end(live, ending, ended_s)
        else:
            self._closing.add(_Closing(self, live, ending, ended_s or self._loop.time()))

    def flush(self) -> None:
        """Tell of the ends that were gathered."""
        self._telling = False
        ended, self._ended = self._ended, []
        if ended:
            self._listener.ended(ended)

    def close(self) -> None:
        """Tell everything, also of those whose output is still being written."""
        for closing in list(self._closing):
            closing.ring(0)
        self.flush()

    def close_log(self, closing: _Closing) -> None:
        self._timers.at(self._loop.time() + LOG_WAIT_S, closing)

    def closed_log(self, closing: _Closing, live: Live, ending: Ending, ended_s: float, size: int) -> None:
        self._closing.discard(closing)
        self._timers.dropped()
        self._tell_end(live, ending, ended_s, size)

    def _tell_end(self, live: Live, ending: Ending, ended_s: float | None, log_bytes: int = 0) -> None:
        attempt = live.attempt
        self._ended.append(
            AttemptEnd(
                item_id=attempt.item_id,
                attempt=attempt.attempt,
                outcome=ending.outcome,
                started_s=live.started_s,
                ended_s=self._loop.time() if ended_s is None else ended_s,
                code=ending.code,
                cause=ending.cause,
                message=ending.message,
                result=ending.result,
                log_bytes=log_bytes,
                late_s=ending.late_s,
            )
        )
        self._soon()

    def _tell_starts(self) -> None:
        """Tell what has started and goes on, and from here on watch its time."""
        fresh, self._fresh = self._fresh, {}
        for live in fresh.values():
            self._watch(live)
        if fresh:
            self._listener.started(
                [(item_id, live.attempt.attempt, live.started_s or 0.0) for item_id, live in fresh.items()]
            )

    def _watch(self, live: Live) -> None:
        attempt = live.attempt
        started_s = live.started_s or 0.0
        timeout_s = attempt.time_s
        if timeout_s is not None:
            self._set(live, started_s + timeout_s, TERM)
        if attempt.warn_s is not None:
            self._set(live, started_s + attempt.warn_s, WARN)

    def _soon(self) -> None:
        if not self._telling:
            self._telling = True
            self._loop.call_soon(self.flush)

    def _set(self, live: Live, when: float, rung: int) -> None:
        live.rungs += 1
        self._timers.at(when, live, rung)

    def _climb(self, live: Live, rung: int) -> None:
        attempt = live.attempt
        if rung == WARN:
            message = f"takes longer than {attempt.warn_s or 0:g} s"
            self._listener.warned(attempt.item_id, attempt.attempt, message)
        elif rung == TERM:
            self.ask(live, Outcome.TIMED_OUT)
        elif rung == INSIST and live.place is not None:
            live.place.insist(live)
        elif live.place is not None:
            live.place.kill(live)


class _Closing:
    """An attempt that is over, but whose output is still on its way."""

    __slots__ = ("_desk", "_ended_s", "_ending", "live", "over")

    def __init__(self, desk: Desk, live: Live, ending: Ending, ended_s: float) -> None:
        self.over = False
        self._desk = desk
        self.live = live
        self._ending = ending
        self._ended_s = ended_s
        assert live.printed is not None
        live.printed.finish(self._done)
        desk.close_log(self)

    def ring(self, what: int) -> None:
        assert self.live.printed is not None
        self._done(self.live.printed.size)

    def _done(self, size: int) -> None:
        if not self.over:
            self.over = True
            self._desk.closed_log(self, self.live, self._ending, self._ended_s, size)
