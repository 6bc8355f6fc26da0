"""What is read of the queue, the limits, the nodes and the rounds in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rota.model import tables
from rota.model.cluster import Drains, Role
from rota.model.dispatch import Grant, Granted, Pulse
from rota.model.node import Members, Node, NodeState
from rota.model.records import drain_of, from_us, joined_of, lane_of, limit_of, queued_of
from rota.model.run import Run
from rota.model.standing import ItemStanding, QuotaCount, Standing
from rota.model.states import ItemState, RunState
from rota.model.tables import NodeRow, QueueRow
from rota.model.value import decode
from rota.model.work import Lane, Limit, Queued, quota_limit
from rota.storage.memory.reads import MemoryAlarmReads
from rota.storage.memory.tables import LIVE_KEY

QUOTA = "quota:"


class MemoryQueueReads(MemoryAlarmReads):
    """The queue, limits, nodes and rounds as others see them."""

    async def limits(self) -> tuple[Limit, ...]:
        return self._limits()

    def _limits(self, *, remembered: bool = False) -> tuple[Limit, ...]:
        """What was set; `remembered`: also what is only known of the starts of jobs."""
        return tuple(limit_of(row) for row in self._rows.all(tables.LIMIT) if row.is_set or remembered)

    async def queued(
        self,
        *,
        item_ids: Sequence[int] | None = None,
        node_id: int | None = None,
        expired: bool = False,
        ahead_s: float = 0.0,
        limit: int = 1000,
    ) -> tuple[Queued, ...]:
        until_us = self._now_us() + round(ahead_s * 1_000_000)
        found = [
            it
            for it in self._rows.all(tables.QUEUE)
            if (item_ids is None or it.item_id in item_ids)
            and node_id in (None, it.node_id)
            and not (expired and (it.node_id is not None or it.expires_at is None or it.expires_at > until_us))
        ]
        return tuple(self._readings.all(found[:limit], queued_of))

    async def asked_to_cancel(self, item_ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(it.item_id for it in self._rows.read(tables.QUEUE, item_ids) if it.cancel_at is not None)

    async def pulse(self, node_id: int) -> Pulse:
        row = self.tables.get(tables.DISPATCH, 1)
        assert row is not None, "there is one row"
        granted = [it.round for it in self.tables.rows(tables.GRANT) if it.node_id == node_id]
        return Pulse(
            now_us=self._now_us(),
            holder=row.holder,
            next_us=row.next_at,
            arrived_us=min((it.at for it in self.tables.rows(tables.ARRIVAL)), default=None),
            granted=max(granted, default=0),
        )

    async def granted(self, node_id: int, after_round: int) -> tuple[Grant, ...]:
        rows = [it for it in self._rows.all(tables.GRANT) if it.node_id == node_id and it.round > after_round]
        return tuple(
            Grant(round=it.round, at_us=it.at, items=decode(it.data, tuple[Granted, ...]))
            for it in sorted(rows, key=lambda row: row.round)
        )

    async def nodes(self, *, gone: bool = False) -> Members:
        return self._members(gone=gone)

    def _members(self, *, gone: bool = False) -> Members:
        listed = {it.name: drain_of(it) for it in self.tables.rows(tables.DRAINED)}
        drained = {name for name, it in listed.items() if Role.EXECUTOR in it.roles}
        nodes = [self._node(row, drained) for row in self._rows.all(tables.NODE)]
        return Members(now=self._clock.wall(), nodes=tuple(it for it in nodes if gone or it.lease_until is not None))

    def _node(self, row: NodeRow, drained: set[str]) -> Node:
        lease = self.tables.get(tables.LEASE, row.id)
        state = NodeState(row.state)
        return Node(
            id=row.id,
            joined=joined_of(row.name, row.joined),
            state=NodeState.DRAINING if state is NodeState.ONLINE and row.name in drained else state,
            busy=0.0 if lease is None else lease.busy / 100,
            joined_at=from_us(row.joined_at),
            left_at=from_us(row.left_at),
            lease_until=None if lease is None else from_us(lease.until_at),
            beat=0 if lease is None else lease.beat,
        )

    async def drains(self) -> Drains:
        rows = self._rows.all(tables.DRAINED)
        return Drains(now=self._clock.wall(), drains=tuple(drain_of(row) for row in rows))

    async def generation(self) -> int:
        row = self.tables.get(tables.META, "generation")
        assert row is not None, "there is a generation"
        return int(row.value)

    async def statistics(self) -> tuple[QuotaCount, ...]:
        names = [limit.name.removeprefix(QUOTA) for limit in self._limits() if limit.name.startswith(QUOTA)]
        counts: dict[tuple[str, ...], list[int]] = {tuple(name.split("/", 1)): [0, 0] for name in names}
        for it in self.tables.rows(tables.QUEUE):
            lane = self._lane(it.lane_id)
            counts.setdefault((lane.tenant, lane.quota), [0, 0])[it.state != ItemState.READY] += 1
        return tuple(
            QuotaCount(tenant=tenant, quota=quota, ready=ready, running=running)
            for (tenant, quota), (ready, running) in sorted(counts.items())
        )

    async def unstarted(self, run_ids: Sequence[int]) -> frozenset[int]:
        running = [it.id for it in self._rows.read(tables.RUN, run_ids) if it.state == RunState.RUNNING]
        return frozenset(run_id for run_id in running if self._is_unstarted(run_id))

    def _is_unstarted(self, run_id: int) -> bool:
        items = self.tables.found(tables.ITEM, "run", run_id)
        live = [self.tables.get(tables.QUEUE, item.id) for item in items]
        return all(it is not None and it.attempt == 0 for it in live)

    async def seats_taken(self) -> Mapping[int, int]:
        return self._seated()

    def _seated(self) -> dict[int, int]:
        return dict(Counter(it.node_id for it in self.tables.rows(tables.QUEUE) if it.node_id is not None))

    async def standing(self, run_id: int) -> Standing:
        members = self._members()
        run = await self.run(run_id)
        started = [it for it in self.tables.rows(tables.QUEUE) if it.state != ItemState.READY]
        return Standing(
            now=members.now,
            run=run,
            places=tuple(self._places(run_id)),
            running=dict(Counter(name for it in started for name in self._lane(it.lane_id).limits)),
            limits=self._limits(remembered=True),
            nodes=members.nodes,
            seated=self._seated(),
            before=() if run is None or run.state is not RunState.WAITING else self._before(run),
        )

    def _places(self, run_id: int) -> list[ItemStanding]:
        now_us = self._now_us()
        able = [
            it for it in self.tables.rows(tables.QUEUE) if it.state == ItemState.READY and it.not_before_at <= now_us
        ]
        line = sorted(able, key=lambda it: (it.start_by_at, it.not_before_at, it.item_id))
        places = []
        for item in self._items_of(run_id):
            row = self.tables.get(tables.QUEUE, item.id)
            if row is None:
                continue
            ahead = line[: line.index(row)] if row in line else []
            own = self._quota_of(row)
            places.append(
                ItemStanding(
                    item=item,
                    queued=queued_of(row),
                    lane=self._lane(row.lane_id),
                    ahead=len(ahead),
                    ahead_in_quota=sum(self._quota_of(it) == own for it in ahead),
                )
            )
        return places

    def _lane(self, lane_id: int) -> Lane:
        row = self.tables.get(tables.LANE, lane_id)
        assert row is not None, "a lane with a live item is kept"
        return lane_of(row)

    def _quota_of(self, row: QueueRow) -> str:
        lane = self._lane(row.lane_id)
        return quota_limit(lane.tenant, lane.quota)

    def _before(self, run: Run) -> tuple[int, ...]:
        live = sorted(self.tables.found(tables.RUN, LIVE_KEY, run.overlap_key), key=lambda it: (it.created_at, it.id))
        mine = self.tables.get(tables.RUN, run.id)
        assert mine is not None
        return tuple(it.id for it in live if (it.created_at, it.id) < (mine.created_at, mine.id))
