"""The verbs of a store that are transactions: each is one function of this package, run by the store's `transact`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

from rota.model.alarm import Alarm, AlarmRule, Delivery, Settled
from rota.model.cluster import Drain, Role
from rota.model.dispatch import Board, Finished, ItemEnd, ItemStart, Round
from rota.model.job import JobName
from rota.model.node import Joined, NewNode
from rota.model.plan import Committed, Rule
from rota.model.run import Run
from rota.model.standing import Cancelled, Closed, Pruned, Retention
from rota.model.states import Cause
from rota.model.work import Assignment, Limit, SuspectedOverlap
from rota.transactions import alarms as alarming
from rota.transactions import members
from rota.transactions.assign import assign, close_runs
from rota.transactions.cancel import cancel
from rota.transactions.change import change, place_again
from rota.transactions.finish import Notices, extend, finish, is_plain, settle_runs, suspect_overlap
from rota.transactions.fire import fire
from rota.transactions.hold import hold, outwait_firing, unhold
from rota.transactions.limits import set_limits
from rota.transactions.prune import prune
from rota.transactions.record import assigned_lane
from rota.transactions.rescue import rescue
from rota.transactions.round import LOCKED, RoundIO, make_round
from rota.transactions.tx import ProcessMemory, Tx

T = TypeVar("T")
EndItems = Callable[[Tx, Sequence[ItemEnd]], set[int]]


class Deeds(ABC):
    """What happens in one transaction each."""

    memory: ProcessMemory
    round_shortcut: RoundIO | None = None
    """How a round is made in fewer statements, where the database can."""
    end_items: EndItems | None = None
    """How plain ends are written in one statement, where the database can; returns the items that were ended."""

    @abstractmethod
    async def transact(self, work: Callable[[Tx], T], *, single_write: bool = False) -> T:
        """Run `work` in a transaction and commit it durably; again, from the start, if it lost a race. So `work`
        changes nothing but through what it is given. `single_write`: it locks nothing and writes once, at its end."""

    @abstractmethod
    async def reserve_rows(self, count: int) -> None:
        """Have the ids of so many rows at hand."""

    @abstractmethod
    async def _misplaced(self) -> int: ...

    @abstractmethod
    async def _open_assignments(self, after_id: int, limit: int) -> Sequence[int]: ...

    @abstractmethod
    async def _unsettled_runs(self) -> Sequence[int]: ...

    async def fire(self, job_ids: Sequence[int], rule: Rule) -> Committed:
        return await self.transact(partial(fire, job_ids=job_ids, rule=rule))

    async def change(
        self,
        names: Sequence[JobName],
        rule: Rule,
        *,
        known: Sequence[tuple[JobName, str]] = (),
        cause: Cause = Cause.MANUAL,
        waiting: bool = False,
    ) -> Committed:
        return await self.transact(partial(change, names=names, rule=rule, known=known, cause=cause, waiting=waiting))

    async def misplaced(self, *, repair: bool = False) -> int:
        wrong = await self._misplaced()
        return await self.transact(place_again) if repair and wrong else wrong

    async def hold(self, tenant: str = "", project: str = "") -> None:
        await self.transact(partial(hold, tenant=tenant, project=project))
        await self.transact(partial(outwait_firing, tenant=tenant, project=project))

    async def unhold(self, tenant: str = "", project: str = "") -> bool:
        return await self.transact(partial(unhold, tenant=tenant, project=project))

    async def set_limits(self, limits: Sequence[Limit], removed: Sequence[str] = ()) -> None:
        await self.transact(partial(set_limits, limits=limits, removed=removed))

    async def join(self, node: NewNode, *, lease_s: float) -> Joined:
        return await self.transact(partial(members.join, node=node, lease_s=lease_s))

    async def settle(self, node_id: int, ended: Sequence[tuple[int, int]]) -> None:
        await self.transact(partial(members.settle, node_id=node_id, ended=ended))

    async def advertise(self, node_id: int, handlers: Sequence[str], digests: Mapping[str, str]) -> None:
        await self.transact(partial(members.advertise, node_id=node_id, handlers=handlers, digests=digests))

    async def retire(self, node_id: int) -> None:
        await self.transact(partial(members.retire, node_id=node_id))

    async def leave(self, node_id: int, *, rule: Rule | None = None) -> None:
        await self.transact(partial(members.leave, node_id=node_id, rule=rule))

    async def drain(self, drains: Sequence[Drain]) -> None:
        await self.transact(partial(members.drain, drains=drains))

    async def undrain(self, names: Sequence[str], roles: Sequence[Role]) -> None:
        await self.transact(partial(members.undrain, names=names, roles=roles))

    async def assign(self, wanted: Assignment, *, quota_must_exist: bool = True) -> Run:
        await self.reserve_rows(len(wanted.tasks))
        is_known = assigned_lane(wanted.work) in self.memory.lanes
        work = partial(assign, wanted=wanted, quota_must_exist=quota_must_exist)
        return await self.transact(work, single_write=is_known)

    async def close_runs(self, *, after_id: int = 0, limit: int) -> Closed:
        ids = await self._open_assignments(after_id, limit)
        count = await self.transact(partial(close_runs, run_ids=ids)) if ids else 0
        return Closed(count=count, last_id=ids[-1] if len(ids) == limit else None)

    async def settle_runs(self, rule: Rule, *, after_id: int = 0, limit: int) -> Closed:
        left = await self._unsettled_runs()
        ids = sorted(run_id for run_id in left if run_id > after_id)[:limit]
        count = await self.transact(partial(settle_runs, run_ids=ids, rule=rule)) if ids else 0
        return Closed(count=count, last_id=ids[-1] if len(ids) == limit else None)

    async def dispatch(self, node_id: int, board: Board, *, batch_max: int) -> Round:
        work = partial(make_round, node_id=node_id, board=board, batch_max=batch_max)
        shortcut = self.round_shortcut
        try:
            if shortcut is not None and board.epoch is not None and not board.is_rated and self.memory.is_settled:
                done = await self.transact(partial(work, io=shortcut), single_write=True)
                if done is not None:
                    return done
            done = await self.transact(partial(work, io=LOCKED))
        except BaseException:
            board.forget()
            raise
        assert done is not None, "under the lock a round can always be made"
        return done

    async def finish(
        self,
        ends: Sequence[ItemEnd],
        starts: Sequence[ItemStart] = (),
        *,
        rule: Rule | None = None,
        notices: Notices = {},  # noqa: B006 - never changed
    ) -> Finished:
        end_items = self.end_items
        if end_items is not None and not starts and not notices and is_plain(ends):

            def outright(tx: Tx) -> Finished:
                ended = end_items(tx, ends)
                return Finished(now_us=tx.now_us, stale=frozenset({end.item_id for end in ends} - ended))

            return await self.transact(outright, single_write=True)
        return await self.transact(partial(finish, ends=ends, starts=starts, rule=rule, notices=notices))

    async def suspect_overlap(self, overlaps: Sequence[SuspectedOverlap]) -> None:
        await self.transact(partial(suspect_overlap, overlaps=overlaps))

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
        whom = partial(rescue, node_id=node_id, beat=beat, margin_s=margin_s, seen_gone=seen_gone)
        return await self.transact(partial(whom, ends=ends, rule=rule, notices=notices))

    async def cancel(self, run_ids: Sequence[int], *, rule: Rule) -> Cancelled:
        return await self.transact(partial(cancel, run_ids=run_ids, rule=rule))

    async def extend(self, item_id: int, attempt: int, seconds: float) -> datetime | None:
        return await self.transact(partial(extend, item_id=item_id, attempt=attempt, seconds=seconds))

    async def prune(self, wanted: Retention, *, limit: int) -> Pruned:
        return await self.transact(partial(prune, wanted=wanted, limit=limit))

    async def set_alarm_rule(self, rule: AlarmRule) -> AlarmRule:
        return await self.transact(partial(alarming.set_alarm_rule, rule=rule))

    async def remove_alarm_rule(self, name: str) -> bool:
        return await self.transact(partial(alarming.remove_alarm_rule, name=name))

    async def raise_alarms(self, alarms: Sequence[Alarm], ended: Sequence[str] = ()) -> None:
        if alarms or ended:
            await self.transact(partial(alarming.raise_alarms, alarms=alarms, ended=ended))

    async def sort_alarms(self, told: Sequence[tuple[Alarm, Sequence[str]]]) -> None:
        if told:
            await self.transact(partial(alarming.sort_alarms, told=told))

    async def take_deliveries(self, deliveries: Sequence[Delivery], *, lease_s: float) -> bool:
        try:
            await self.transact(partial(alarming.take_deliveries, deliveries=deliveries, lease_s=lease_s))
        except alarming.AlreadyTaken:
            return False
        return True

    async def settle_deliveries(self, settled: Sequence[Settled]) -> None:
        if settled:
            await self.transact(partial(alarming.settle_deliveries, settled=settled))
