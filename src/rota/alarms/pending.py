"""Alarms that a node notices itself, kept in memory until the store takes them: a bounded number, the newest.

It is told by others, in passing: the claimer, the attempts in hand, the loop that asks the store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime

from rota.loops.store_time import StoreTime
from rota.model.alarm import CLUSTER, Alarm, AlarmKind
from rota.model.moment import micros, moment
from rota.model.value import Json
from rota.model.work import Attempt
from rota.ports import Clock

LOST_S = 5.0
"""What is out of reach for less is a blip."""
NOTES_MAX = 1000


class PendingAlarms:
    """Keeps the alarms of one node that are not in the store yet."""

    def __init__(self, clock: Clock, node: str, *, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._node = node
        self._wake = wake
        self._notes: deque[Alarm] = deque(maxlen=NOTES_MAX)
        self._away_s: float | None = None
        self.moment: StoreTime | None = None
        """The store's clock, as this node knows it."""
        self.late_s: float | None = None
        """If somebody wants to know of late starts: of those that are so late."""

    def take(self) -> tuple[Alarm, ...]:
        """All notes, to be written; they are the caller's now."""
        notes, self._notes = self._notes, deque(maxlen=NOTES_MAX)
        return tuple(notes)

    def put_back(self, notes: Sequence[Alarm]) -> None:
        """They could not be written."""
        self._notes.extendleft(reversed(notes))

    def acquired(self, held: int, most: int) -> None:
        """A sweep has won jobs: X is now `held`, M is `most` (A0.2)."""
        if held > most:
            text = f"scheduler {self._node} holds {held} jobs, more than {most}: add machines"
            self._own(AlarmKind.HELD_ABOVE, text, {"held": held, "most": most}, subject=f":{self._clock.token()}")

    def warned(self, attempt: Attempt, message: str) -> None:
        """An attempt takes longer than it was expected to."""
        self._about(AlarmKind.LONG_RUN, attempt, f"{attempt.item_id}.{attempt.attempt}", {"message": message})

    def began(self, attempt: Attempt, at_s: float) -> None:
        """An attempt has begun. If it is the first at its item, and later than somebody bears, that is an alarm."""
        if self.late_s is None or attempt.attempt != 1 or self.moment is None or attempt.start_by_at is None:
            return
        late_s = (self.moment.at_us(at_s) - micros(attempt.start_by_at)) / 1_000_000
        if late_s > self.late_s:
            self._about(AlarmKind.LATE_START, attempt, str(attempt.item_id), {"late_s": round(late_s, 1)})

    def coordinator_lost(self) -> None:
        """A level: it is open until `coordinator_key` ends."""
        self._own(AlarmKind.COORDINATOR_LOST, f"node {self._node} has lost the coordinator", {}, is_open=True)

    @property
    def coordinator_key(self) -> str:
        return f"{AlarmKind.COORDINATOR_LOST}:{self._node}"

    def store_away(self) -> None:
        """The store did not answer."""
        self._away_s = self._clock.monotonic() if self._away_s is None else self._away_s

    def store_back(self) -> None:
        """The store answers. If it was away for long, that is told now, with its end."""
        away_s, self._away_s = self._away_s, None
        if away_s is None or self.moment is None or self._clock.monotonic() - away_s < LOST_S:
            return
        text = f"node {self._node} had no answer from the store"
        key, at = f"{AlarmKind.STORE_LOST}:{self._node}:{self._clock.token()}", moment(self.moment.at_us(away_s))
        lost = Alarm(key=key, kind=AlarmKind.STORE_LOST, at=at, scope=CLUSTER, text=text, data={"node": self._node})
        self._notes.extend((lost, lost.recovery(self._now())))

    def _own(
        self, kind: AlarmKind, text: str, data: dict[str, Json], *, subject: str = "", is_open: bool = False
    ) -> None:
        said: dict[str, Json] = {**data, "node": self._node}
        key = f"{kind}:{self._node}{subject}"
        self._note(Alarm(key=key, kind=kind, at=self._now(), scope=CLUSTER, text=text, is_open=is_open, data=said))

    def _about(self, kind: AlarmKind, attempt: Attempt, subject: str, data: dict[str, Json]) -> None:
        alarm = Alarm(
            key=f"{kind}:{subject}",
            kind=kind,
            at=self._now(),
            job_id=attempt.job_id or None,
            run_id=attempt.run_id,
            data={**data, "node": self._node},
        )
        self._note(alarm)

    def _note(self, alarm: Alarm) -> None:
        self._notes.append(alarm)
        self._wake()

    def _now(self) -> datetime:
        return self._clock.wall() if self.moment is None else self.moment.now()
