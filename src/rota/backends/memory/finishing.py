"""What clients assign, and how attempts end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from rota.backends.memory.ground import cancelled_attempt, ready_of
from rota.backends.memory.rounds import Rounds
from rota.backends.record import (
    AVOIDED,
    OVERLAP_SUSPECTED,
    Place,
    assigned_data,
    assigned_lane,
    assigned_run,
    numbers_taken,
    overlap_data,
    unknown_quota,
)
from rota.model.dispatch import ArrivalKind, Finished, ItemEnd, ItemStart
from rota.model.moment import micros, moment
from rota.model.node import NodeState
from rota.model.plan import Rule
from rota.model.run import Item, Run, RunKey
from rota.model.standing import Cancelled, Closed
from rota.model.states import Cause, ItemState, Outcome, RunState
from rota.model.value import encode
from rota.model.work import Assignment, AttemptRecord, Overlap, Queued, quota_limit, spread

Notices = Mapping[int, Sequence[Assignment]]


class Finishing(Rounds):
    """Assign, finish, rescue, cancel."""

    async def assign(self, wanted: Assignment, *, quota_must_exist: bool = True) -> Run:
        known = self._keys.get(RunKey(0, Cause.ASSIGN, wanted.full_key))
        if known is not None:
            return self._derived(self._runs[known])
        work = wanted.work
        if quota_must_exist and quota_limit(work.tenant, work.quota) not in self._limits:
            raise unknown_quota(work)
        taken = [task.number for task in wanted.tasks if (work.tenant, task.number) in self._numbers]
        if taken:
            raise numbers_taken(taken)
        return self._assign(wanted, Cause.ASSIGN)

    async def close_runs(self, *, after_id: int = 0, limit: int) -> Closed:
        still_open = sorted(it.id for it in self._runs.values() if it.job_id == 0 and it.ended_at is None)
        ids = [run_id for run_id in still_open if run_id > after_id][:limit]
        over = [run for run in (self._derived(self._runs[it]) for it in ids) if run.ended_at is not None]
        for run in over:
            self._put(run)
            self._record(f"run.{run.state}", {"was": "running"}, run_id=run.id)
        return Closed(count=len(over), last_id=ids[-1] if len(ids) == limit else None)

    async def settle_runs(self, rule: Rule, *, after_id: int = 0, limit: int) -> Closed:
        left = [run.id for run in self._runs.values() if run.job_id and run.state is RunState.RUNNING]
        ids = [it for it in sorted(left) if it > after_id and self._has_ended(it)][:limit]
        if ids:
            self._decide(self._owners(ids), rule, run_ids=ids)
        settled = [it for it in ids if not self._runs[it].state.live]
        return Closed(count=len(settled), last_id=ids[-1] if len(ids) == limit else None)

    def _has_ended(self, run_id: int) -> bool:
        items = [self._items[it] for it in self._items_of.get(run_id, ())]
        return bool(items) and all(item.ended_at is not None for item in items)

    async def finish(
        self,
        ends: Sequence[ItemEnd],
        starts: Sequence[ItemStart] = (),
        *,
        rule: Rule | None = None,
        notices: Notices = {},  # noqa: B006 - never changed
    ) -> Finished:
        stale: set[int] = set()
        now = self._clock.wall()
        self._settle(ends, starts, rule, notices, stale, now)
        return Finished(now_us=micros(now), stale=frozenset(stale))

    async def suspect_overlap(self, overlaps: Sequence[Overlap]) -> None:
        for it in overlaps:
            self._record(OVERLAP_SUSPECTED, overlap_data(it), job_id=it.job_id or None, run_id=it.run_id)

    async def rescue(
        self,
        node_id: int,
        beat: int,
        ends: Sequence[ItemEnd],
        *,
        rule: Rule,
        margin_s: float,
        seen_gone: bool = False,
        notices: Notices = {},  # noqa: B006 - never changed
    ) -> bool:
        node = self._nodes.get(node_id)
        if node is not None and node.lease_until is not None:
            now = self._clock.wall()
            is_void = node.joined.is_void(micros(node.lease_until), micros(now))
            over = seen_gone or is_void or node.lease_until + timedelta(seconds=margin_s) < now
            if not over or node.beat != beat:
                return False
        self._settle(ends, (), rule, notices, set(), self._clock.wall())
        if all(it.node_id != node_id for it in self._queue.values()):
            self._give_up(node_id, NodeState.DISCONNECTED)
        return True

    async def leave(self, node_id: int, *, rule: Rule | None = None) -> None:
        mine = sorted((it for it in self._queue.values() if it.node_id == node_id), key=lambda it: it.item_id)
        asked = [it for it in mine if it.cancel_at is not None]
        self._end_asked(asked)
        fresh = {"state": ItemState.READY, "node_id": None, "round": None, "assigned_at": None, "started_at": None}
        back = [ready_of(self._change(it.item_id, **fresh)) for it in mine if it.cancel_at is None]
        self._tell(ArrivalKind.READY, ready=back)
        if of_jobs := sorted({it.run_id for it in asked if it.job_id}):
            assert rule is not None, "the runs of jobs need a rule that says what follows"
            self._decide(self._owners(of_jobs), rule, run_ids=of_jobs)
        self._give_up(node_id, NodeState.OFFLINE)

    def _end_asked(self, held: Sequence[Queued]) -> None:
        """End items that were asked to stop, and that their node does not run any more."""
        now = self._clock.wall()
        for it in held:
            assert it.node_id is not None
            self._end_item(it.item_id, ItemState.CANCELLED, now)
            self._attempts[it.item_id].append(cancelled_attempt(it, now, self._nodes[it.node_id].joined.name))
        self._tell(ArrivalKind.ENDED, item_ids=[it.item_id for it in held])

    async def cancel(self, run_ids: Sequence[int], *, rule: Rule) -> Cancelled:
        runs = [self._runs[it] for it in sorted(set(run_ids)) if it in self._runs]
        for run in runs:
            if run.ended_at is None and run.cancel_at is None:
                self._put(msgspec.structs.replace(run, cancel_at=self._clock.wall()))
                self._record("run.cancel_asked", {}, job_id=run.job_id or None, run_id=run.id)
        ended, asked = self._ask_to_stop(run.id for run in runs)
        of_jobs = [run.id for run in runs if run.job_id]
        if of_jobs:
            self._decide(self._owners(of_jobs), rule, run_ids=of_jobs)
        return Cancelled(ended=ended, asked=asked)

    async def extend(self, item_id: int, attempt: int, seconds: float) -> datetime | None:
        it = self._queue.get(item_id)
        if it is None or it.attempt != attempt or it.state is not ItemState.RUNNING or it.node_id is not None:
            return None
        return self._change(item_id, expires_at=self._clock.wall() + timedelta(seconds=seconds)).expires_at

    def _assign(self, wanted: Assignment, cause: Cause) -> Run:
        run = assigned_run(next(self._run_ids), wanted, cause, self._clock.wall())
        self._put(run)
        self._items_of[run.id] = []
        places = []
        start_by = spread(micros(run.due_at), micros(wanted.end_at or run.due_at), len(wanted.tasks))
        tenant = wanted.work.tenant if cause is Cause.ASSIGN else None
        for index, (by, task) in enumerate(zip(start_by, wanted.tasks, strict=True)):
            item = Item(
                id=next(self._row_ids),
                run_id=run.id,
                task="main",
                index=index,
                state=ItemState.READY,
                not_before_at=run.due_at,
                start_by_at=moment(by),
                tenant=tenant,
                number=task.number,
                info=None if task.info is None else encode(task.info),
            )
            self._items[item.id] = item
            self._items_of[run.id].append(item.id)
            if tenant is not None:
                self._numbers[tenant, task.number] = item.id
            hold_s = 0.0 if wanted.work.handler is None else wanted.work.hold_s
            places.append(Place(item, 0, assigned_lane(wanted.work), hold_s))
        self._record("run.started", assigned_data(run, len(places)), run_id=run.id)
        self._enqueue(places)
        return run

    def _settle(
        self,
        ends: Sequence[ItemEnd],
        starts: Sequence[ItemStart],
        rule: Rule | None,
        notices: Notices,
        stale: set[int],
        now: datetime,
    ) -> None:
        def write() -> list[int]:
            return self._write(ends, starts, notices, stale, now)

        run_ids = {end.run_id for end in ends if end.job_id}
        if not run_ids:
            write()
            return
        assert rule is not None, "the runs of jobs need a rule that says what follows"
        self._decide(self._owners(run_ids), rule, run_ids=run_ids, first=write)

    def _write(
        self, ends: Sequence[ItemEnd], starts: Sequence[ItemStart], notices: Notices, stale: set[int], now: datetime
    ) -> list[int]:
        ended = {end.item_id for end in ends}
        for start in starts:
            if start.item_id not in ended:
                self._begin(start, stale, now)
        concerned = set()
        for end in ends:
            if not self._is_current(end):
                stale.add(end.item_id)
                continue
            self._end(end, now)
            for notice in notices.get(end.item_id, ()):
                self._assign(notice, Cause.NOTICE)
            if end.job_id:
                concerned.add(end.run_id)
        return sorted(concerned)

    def _is_current(self, end: ItemEnd) -> bool:
        it = self._queue.get(end.item_id)
        if it is None or not _is_of(end, it):
            return False
        return end.expired_us is None or (it.expires_at is not None and micros(it.expires_at) == end.expired_us)

    def _begin(self, start: ItemStart, stale: set[int], now: datetime) -> None:
        it = self._queue.get(start.item_id)
        if it is None or not _is_of(start, it):
            stale.add(start.item_id)
        elif start.expires_s is None and it.state is ItemState.ASSIGNED:
            self._change(it.item_id, state=ItemState.RUNNING, started_at=moment(start.started_us))
        elif start.expires_s is not None and it.node_id is not None:
            self._leave_node(start, it.cancel_at is not None, now)

    def _leave_node(self, start: ItemStart, is_cancelled: bool, now: datetime) -> None:
        assert start.expires_s is not None
        started_at = moment(start.started_us)
        fields = {"started_at": started_at, "expires_at": started_at + timedelta(seconds=start.expires_s)}
        it = self._change(start.item_id, state=ItemState.RUNNING, node_id=None, **fields)
        self._tell(ArrivalKind.OUTSIDE, left=[(it.item_id, it.attempt)])
        if is_cancelled:
            self._end_item(it.item_id, ItemState.CANCELLED, now)
            self._attempts[it.item_id].append(cancelled_attempt(it, now))
            self._tell(ArrivalKind.ENDED, item_ids=[it.item_id])

    def _lane_after(self, end: ItemEnd) -> int:
        if not end.newer_than:
            return end.lane_id
        return self._lane_id(msgspec.structs.replace(self._lanes[end.lane_id], newer_than=end.newer_than))

    def _end(self, end: ItemEnd, now: datetime) -> None:
        it = self._queue[end.item_id]
        self._attempts[end.item_id].append(_attempt(end, now))
        if end.state == ItemState.READY and it.cancel_at is None:
            again = self._change(
                end.item_id,
                state=ItemState.READY,
                not_before_at=now + timedelta(seconds=end.delay_s),
                failures=end.failures,
                losses=end.losses,
                avoid_id=end.node_id if end.outcome in AVOIDED else None,
                lane_id=self._lane_after(end),
                node_id=None,
                round=None,
                assigned_at=None,
                started_at=None,
                expires_at=None,
            )
            self._tell(ArrivalKind.READY, ready=[ready_of(again)])
            return
        state = ItemState.CANCELLED if end.state == ItemState.READY else ItemState(end.state)
        self._end_item(end.item_id, state, now, result=end.result, message=end.message or None)
        self._tell(ArrivalKind.ENDED, item_ids=[end.item_id])


def _attempt(end: ItemEnd, now: datetime) -> AttemptRecord:
    return AttemptRecord(
        item_id=end.item_id,
        attempt=end.attempt,
        node=end.node,
        round=end.round,
        assigned_at=None if end.assigned_us is None else moment(end.assigned_us),
        started_at=None if end.started_us is None else moment(end.started_us),
        ended_at=now,
        outcome=Outcome(end.outcome),
        code=end.code,
        message=end.message,
        log_bytes=end.log_bytes,
    )


def _is_of(told: ItemEnd | ItemStart, it: Queued) -> bool:
    """Whether it tells of the attempt that is under way. Its number alone may have come again."""
    return it.attempt == told.attempt and it.state is not ItemState.READY and told.round in (None, it.round)
