"""The whole store: limits, questions about the queue, and what is forgotten, on top of the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from rota.backends.memory.alarms import Alarms
from rota.backends.memory.coordinator import MemoryCoordinator, Realm
from rota.errors import Refused
from rota.model.run import Run
from rota.model.standing import Place, Pruned, QuotaCount, Retention, Standing
from rota.model.states import ItemState, RunState
from rota.model.work import GLOBAL, Limit, Queued, quota_limit
from rota.ports import Clock, Coordinator

QUOTA = "quota:"


class MemoryStore(Alarms):
    """The store that lives and dies with its process."""

    hears = False

    def __init__(self, clock: Clock, *, actor: str) -> None:
        super().__init__(clock, actor=actor)
        self.realm = Realm(clock)

    async def migrate(self) -> None:
        pass

    async def check(self) -> None:
        pass

    async def weaknesses(self) -> tuple[str, ...]:
        return ("everything is in memory, and gone with its process",)

    async def close(self) -> None:
        pass

    def coordinator(self, clock: Clock, *, ttl_s: float) -> Coordinator:
        return MemoryCoordinator(self.realm, clock, ttl_s=ttl_s)

    async def limits(self) -> tuple[Limit, ...]:
        return tuple(self._limits[name] for name in sorted(self._limits))

    async def set_limits(self, limits: Sequence[Limit], removed: Sequence[str] = ()) -> None:
        if GLOBAL in removed:
            raise Refused("the global limit cannot be removed, only set")
        for name in removed:
            self._limits.pop(name, None)
        for limit in limits:
            known = self._limits.get(limit.name)
            self._limits[limit.name] = msgspec.structs.replace(limit, recent=() if known is None else known.recent)
        self._lock = self._lock._replace(changes=self._lock.changes + 1)
        self._nudge()

    async def statistics(self) -> tuple[QuotaCount, ...]:
        pairs = [tuple(name.removeprefix(QUOTA).split("/", 1)) for name in self._limits if name.startswith(QUOTA)]
        counts: dict[tuple[str, ...], list[int]] = {pair: [0, 0] for pair in pairs}
        for it in self._queue.values():
            lane = self._lanes[it.lane_id]
            counts.setdefault((lane.tenant, lane.quota), [0, 0])[it.state is not ItemState.READY] += 1
        return tuple(
            QuotaCount(tenant=tenant, quota=quota, ready=ready, running=running)
            for (tenant, quota), (ready, running) in sorted(counts.items())
        )

    async def unstarted(self, run_ids: Sequence[int]) -> frozenset[int]:
        return frozenset(run_id for run_id in run_ids if run_id in self._runs and self._is_unstarted(run_id))

    def _is_unstarted(self, run_id: int) -> bool:
        live = [self._queue.get(item_id) for item_id in self._items_of.get(run_id, ())]
        is_running = self._runs[run_id].state is RunState.RUNNING
        return is_running and all(it is not None and it.attempt == 0 for it in live)

    async def seats_taken(self) -> Mapping[int, int]:
        return dict(Counter(it.node_id for it in self._queue.values() if it.node_id is not None))

    async def standing(self, run_id: int) -> Standing:
        members = self._members()
        run = await self.run(run_id)
        started = [it for it in self._queue.values() if it.state is not ItemState.READY]
        return Standing(
            now=members.now,
            run=run,
            places=tuple(self._places(run_id)),
            running=dict(Counter(name for it in started for name in self._lanes[it.lane_id].limits)),
            limits=(*await self.limits(), *self._starts.values()),
            nodes=members.nodes,
            seated=dict(Counter(it.node_id for it in started if it.node_id is not None)),
            before=() if run is None or run.state is not RunState.WAITING else self._before(run),
        )

    async def forgotten(self, run_ids: Sequence[int]) -> Sequence[int]:
        given = max(self._runs, default=0)
        return [it for it in run_ids if it < given and it not in self._runs]

    async def prune(self, wanted: Retention, *, limit: int) -> Pruned:
        now = self._clock.wall()
        runs = [run for run in self._runs.values() if self._is_old(run, wanted)]
        old = sorted(runs, key=lambda run: (run.created_at, run.id))[:limit]
        for run in old:
            self._forget(run)
        history = now - timedelta(seconds=wanted.history_s)
        before = len(self._events)
        self._events = [line for line in self._events if line.run_id is not None or line.at >= history]
        rows = len(old) + before - len(self._events) + self._forget_alarms(history)
        rows += self._forget_nodes(now - timedelta(seconds=wanted.age_s))
        rows += self._forget_lanes()
        return Pruned(run_ids=tuple(run.id for run in old), rows=rows)

    def _forget_lanes(self) -> int:
        """Those that no live item is in; made anew when one comes."""
        used = {it.lane_id for it in self._queue.values()}
        idle = [lane_id for lane_id in self._lanes if lane_id not in used]
        for lane_id in idle:
            del self._lane_ids[self._lanes.pop(lane_id)]
        return len(idle)

    def _places(self, run_id: int) -> list[Place]:
        now = self._clock.wall()
        able = [it for it in self._queue.values() if it.state is ItemState.READY and it.not_before_at <= now]
        line = sorted(able, key=lambda it: (it.start_by_at, it.not_before_at, it.item_id))
        places = []
        for item_id in (it for it in self._items_of.get(run_id, ()) if it in self._queue):
            queued = self._queue[item_id]
            ahead = line[: line.index(queued)] if queued in line else []
            own = self._quota_of(queued)
            places.append(
                Place(
                    item=self._shown(self._items[item_id]),
                    queued=queued,
                    lane=self._lanes[queued.lane_id],
                    ahead=len(ahead),
                    ahead_in_quota=sum(self._quota_of(it) == own for it in ahead),
                )
            )
        return places

    def _quota_of(self, queued: Queued) -> str:
        lane = self._lanes[queued.lane_id]
        return quota_limit(lane.tenant, lane.quota)

    def _before(self, run: Run) -> tuple[int, ...]:
        live = self._live[run.overlap_key].values()
        return tuple(other.id for other in live if (other.created_at, other.id) < (run.created_at, run.id))

    def _is_old(self, run: Run, wanted: Retention) -> bool:
        if run.ended_at is None:
            return False
        age_s = (self._clock.wall() - run.ended_at).total_seconds()
        if run.job_id == 0:
            return age_s > max(wanted.age_s, wanted.numbers_s)
        newer = sum(
            other.job_id == run.job_id
            and other.ended_at is not None
            and (other.created_at, other.id) > (run.created_at, run.id)
            for other in self._runs.values()
        )
        return age_s > wanted.age_s or newer >= wanted.runs_max

    def _forget(self, run: Run) -> None:
        for item_id in self._items_of.pop(run.id, ()):
            item = self._items.pop(item_id)
            self._attempts.pop(item_id, None)
            if item.tenant is not None and item.number is not None:
                self._numbers.pop((item.tenant, item.number), None)
        self._keys.pop(run.unique)
        self._runs.pop(run.id)
        self._events = [line for line in self._events if line.run_id != run.id]
