"""Finish: commit how attempts ended, many at a time, each only under its own token.

What was not committed is kept and tried again: the same end written twice counts once. A start is written only if the
attempt runs for longer than a moment; one that ends sooner goes from assigned to its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rota.config import ExecutorConfig
from rota.core.advance import Advance
from rota.core.attempt import may_overlap
from rota.core.notice import notices
from rota.core.retry import after
from rota.errors import StoreUnavailable
from rota.logger import log
from rota.loops.in_hand import AttemptsInHand
from rota.loops.loader import Loader
from rota.loops.loop import Loop
from rota.loops.member import Identity
from rota.loops.signals import Signals
from rota.loops.store_time import StoreTime
from rota.model.dispatch import ItemEnd, ItemStart
from rota.model.moment import moment
from rota.model.node import MARGIN_S
from rota.model.states import Outcome
from rota.model.work import MESSAGE_MAX, Assignment, Attempt, AttemptEnd, SuspectedOverlap
from rota.ports import Clock, Store
from rota.transactions.finish import finish, suspect_overlap

START_S = 0.1
"""An attempt that has run for so long gets its start written."""

UNBEGUN_S = 1.0
"""How long an item rests that its node could not begin with."""


@dataclass(eq=False, repr=False)
class Finisher(Loop):
    """Writes ends and starts of attempts."""

    store: Store
    clock: Clock
    config: ExecutorConfig
    identity: Identity
    in_hand: AttemptsInHand
    loader: Loader
    signals: Signals = field(default_factory=Signals)
    gather_s: float = 0.0
    margin_s: float = MARGIN_S
    _overlaps: list[SuspectedOverlap] = field(default_factory=list)
    _moment: StoreTime | None = None
    finished: int = 0
    """Ends that this finisher committed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_once = self.config.batch_max
        """How many ends are written together: fewer while something is wrong with one of them."""

    async def once(self) -> float:
        if self._moment is None:
            self._moment = StoreTime(self.clock, await self.store.now())
        await self._tell_overlaps()
        early_s = self._early_s()
        if early_s > 0:
            return early_s
        over = self._take()
        starts = self._starts(self._moment)
        ends = [end for it in over if (end := self._end(*it, self._moment)) is not None]
        starts += [self._outside(it, end, self._moment) for it, end in over if _is_outside(it, end)]
        if not ends and not starts:
            return START_S if self.in_hand.begun else 3600.0
        self.in_hand.written_s = self.clock.monotonic()
        self.in_hand.being_written += len(over)
        try:
            told = await self._notices(over, ends)
            done = await finish(self.store, ends, starts, rule=Advance(), notices=told)
        except BaseException as fault:
            self._put_back(over, alone=isinstance(fault, Exception) and not isinstance(fault, StoreUnavailable))
            raise
        finally:
            self.in_hand.being_written -= len(over)
        self._at_once = self.config.batch_max
        self._moment = StoreTime(self.clock, moment(done.now_us))  # a clock that drifts is not carried on for long
        for start in starts:
            self.in_hand.begun.pop(start.item_id, None)
        self.in_hand.settled([attempt for attempt, _ in over])
        self.finished += sum(end.item_id not in done.stale for end in ends)
        if done.stale:
            log.warning("attempt.end_refused", items=sorted(done.stale)[:20], count=len(done.stale))
            self._overlaps += [it for it in self._suspected(over) if it.item_id in done.stale]
        self.signals.committed.emit()
        return 0.0 if self.in_hand.over or self._overlaps else (START_S if self.in_hand.begun else 3600.0)

    def _suspected(self, over: Sequence[tuple[Attempt, AttemptEnd]]) -> list[SuspectedOverlap]:
        """Those whose processes outlived the lease of this node."""
        return [
            SuspectedOverlap(
                item_id=it.item_id,
                attempt=it.attempt,
                run_id=it.run_id,
                job_id=it.job_id,
                node=self.identity.name,
                late_s=round(end.late_s, 3),
            )
            for it, end in over
            if may_overlap(end, self.margin_s)
        ]

    async def _tell_overlaps(self) -> None:
        """Kept until the store has taken them."""
        if overlaps := self._overlaps[: self.config.batch_max]:
            await self.store.transact(suspect_overlap, overlaps)
            del self._overlaps[: len(overlaps)]
            items = [it.item_id for it in overlaps]
            log.warning("attempt.overlap_suspected", items=items[:20], reason="this host stood still")

    def _put_back(self, over: Sequence[tuple[Attempt, AttemptEnd]], *, alone: bool) -> None:
        """They are tried again; `alone`: something is wrong with one of them, so fewer at a time, and when it is alone,
        after all others."""
        if alone and len(over) == 1:
            self.in_hand.over.append(over[0])
        else:
            self.in_hand.over.extendleft(reversed(over))
        if alone:
            self._at_once = max(len(over) // 2, 1)

    async def _notices(
        self, over: Sequence[tuple[Attempt, AttemptEnd]], ends: Sequence[ItemEnd]
    ) -> dict[int, list[Assignment]]:
        """What the clients of assigned items want to be told."""
        wanting = {attempt.item_id: attempt for attempt, _ in over if attempt.spec.notify}
        unlucky = [end for end in ends if end.item_id in wanting and end.outcome != Outcome.SUCCEEDED]
        if not unlucky:
            return {}
        works = await self.loader.work_of({end.run_id for end in unlucky})
        found: dict[int, list[Assignment]] = {}
        for end in unlucky:
            attempt, work = wanting[end.item_id], works.get(end.run_id)
            if work is not None:
                found[end.item_id] = notices(end, work, attempt.number, attempt.info)
        return found

    def _early_s(self) -> float:
        """For how much longer ends shall gather: a transaction for each would cost more than they do."""
        if self.in_hand.is_all_over or len(self.in_hand.over) >= self.config.batch_max:
            return 0.0
        return self.in_hand.written_s + self.gather_s - self.clock.monotonic()

    def _take(self) -> list[tuple[Attempt, AttemptEnd]]:
        over = self.in_hand.over
        return [over.popleft() for _ in range(min(len(over), self._at_once))]

    def _starts(self, read: StoreTime) -> list[ItemStart]:
        """The attempts that have run for a moment and whose start is not written."""
        before_s = self.clock.monotonic() - START_S
        due = [(item_id, at_s) for item_id, at_s in self.in_hand.begun.items() if at_s <= before_s]
        return [
            ItemStart(item_id=item_id, attempt=it.attempt, round=it.round, started_us=read.at_us(at_s))
            for item_id, at_s in due[: self.config.batch_max]
            if (it := self.in_hand.attempts.get(item_id)) is not None
        ]

    def _outside(self, attempt: Attempt, end: AttemptEnd, read: StoreTime) -> ItemStart:
        assert attempt.spec.timeout_s is not None
        return ItemStart(
            item_id=attempt.item_id,
            attempt=attempt.attempt,
            round=attempt.round,
            started_us=read.at_us(end.ended_s if end.started_s is None else end.started_s),
            expires_s=attempt.spec.timeout_s,
        )

    def _end(self, attempt: Attempt, end: AttemptEnd, read: StoreTime) -> ItemEnd | None:
        """What becomes of the item. One whose client reports the end goes on when `on_start` has returned."""
        if _is_outside(attempt, end):
            return None
        unbegun = end.outcome is Outcome.LOST and end.started_s is None
        following = after(
            end.outcome,
            end.cause,
            failures=attempt.failures,
            losses=attempt.losses - unbegun,  # what no process has begun is not counted as lost
            retry=attempt.spec.retry,
            chance=self.clock.chance(),
        )
        return ItemEnd(
            item_id=attempt.item_id,
            attempt=attempt.attempt,
            run_id=attempt.run_id,
            job_id=attempt.job_id,
            lane_id=attempt.lane_id,
            outcome=end.outcome,
            state=following.state,
            delay_s=max(following.delay_s, UNBEGUN_S) if unbegun else following.delay_s,
            failures=following.failures,
            losses=following.losses,
            node=self.identity.name,
            node_id=self.identity.id,
            round=attempt.round,
            assigned_us=attempt.assigned_us,
            started_us=None if end.started_s is None else read.at_us(end.started_s),
            code=end.code,
            message=(following.message or end.message)[:MESSAGE_MAX],
            result=end.result,
            log_bytes=end.log_bytes,
        )


def _is_outside(attempt: Attempt, end: AttemptEnd) -> bool:
    return attempt.spec.external and end.outcome is Outcome.SUCCEEDED
