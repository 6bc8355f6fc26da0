"""Keep the attempts that this node has in hand: from the grant until their end is committed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from rota.logger import log
from rota.loops.signals import Signals
from rota.model.work import Attempt, AttemptEnd

GIVEN_BACK_MAX = 1000
"""Those that come late come soon: a grant is begun within seconds."""


class AttemptsInHand:
    """The executor adds attempts, the runner tells of their starts and ends (`ports.Listener`), the finisher takes the
    ends."""

    def __init__(self, signals: Signals | None = None) -> None:
        self._signals = signals or Signals()
        self.attempts: dict[int, Attempt] = {}
        self._given_back: deque[tuple[int, int]] = deque(maxlen=GIVEN_BACK_MAX)
        self.begun: dict[int, float] = {}
        """When attempts (by item) started, by the monotonic clock, while their start is not written yet."""
        self.written_s = 0.0
        """When the last batch of ends was begun, by the monotonic clock."""
        self.being_written = 0
        """How many ends are on their way to the store."""
        self.over: deque[tuple[Attempt, AttemptEnd]] = deque()
        self.idle = asyncio.Event()
        self.idle.set()

    @property
    def is_all_over(self) -> bool:
        """Whether nothing that is in hand runs any more."""
        return len(self.attempts) - self.being_written <= len(self.over)

    def give_back(self, attempts: Iterable[tuple[int, int]]) -> None:
        """Attempts (item, attempt) that this node does not know go back: from now on none of them may begin here."""
        self._given_back.extend(attempts)

    def add(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Take attempts in hand; says which of them may begin."""
        taken = []
        for it in attempts:
            known = self.attempts.get(it.item_id)
            in_hand = known is not None and known.token >= it.token
            if not in_hand and (it.item_id, it.attempt) not in self._given_back:
                self.attempts[it.item_id] = it
                taken.append(it)
        if self.attempts:
            self.idle.clear()
        return taken

    def started(self, attempts: Sequence[tuple[int, int, float]]) -> None:
        was_idle = not self.begun
        for item_id, attempt, at_s in attempts:
            known = self.attempts.get(item_id)
            if known is not None and known.attempt == attempt:
                self.begun[item_id] = at_s
                self._signals.attempt_began.emit(known, at_s)
        if was_idle and self.begun:
            self._signals.unwritten.emit()  # finishers rest while nothing ends; the start is written in a moment

    def ended(self, ends: Sequence[AttemptEnd]) -> None:
        for end in ends:
            known = self.attempts.get(end.item_id)
            if known is not None and known.attempt == end.attempt:
                if end.started_s and end.item_id not in self.begun:
                    self._signals.attempt_began.emit(known, end.started_s)
                self.begun.pop(end.item_id, None)
                self.over.append((known, end))
        self._signals.unwritten.emit()

    def warned(self, item_id: int, attempt: int, message: str) -> None:
        log.warning("attempt.slow", item=item_id, attempt=attempt, message=message)
        known = self.attempts.get(item_id)
        if known is not None and known.attempt == attempt:
            self._signals.attempt_warned.emit(known, message)

    def settled(self, attempts: Sequence[Attempt]) -> None:
        """The ends of these are committed, or came too late. A later attempt at the same item stays."""
        for attempt in attempts:
            known = self.attempts.get(attempt.item_id)
            if known is not None and known.token == attempt.token:
                del self.attempts[attempt.item_id]
                self.begun.pop(attempt.item_id, None)
        if not self.attempts:
            self.idle.set()
