"""Decide a dispatch round: which ready items start now, in which order, and where.

An item may start when its time has come, none of its limits is full, and an executor of its group that has its handler
has a free seat. Of those that may, the next is the one with the earliest `start_by`; then the earliest `not_before`;
then the one whose quota has the least running per weight; then the oldest. An item is passed over only while it may not
start. `Rounds` keeps heaps, so that a round costs what it gives, not what waits; `plain_round` is the same rule in its
shortest form, for tests to compare with.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rota.core.rate import free_at, remember
from rota.model.dispatch import Arrival, Given, Ready, RoundPlan, Seated, Target
from rota.model.work import CAPACITY, GLOBAL, Lane, Limit, quota_limit

JOB = "job:"
STARVED_US = 1_000_000
"""When to look again for an executor, if none could take what may start."""

Waiting = tuple[int, int, int, Ready]
"""An item in its lane's heap: start_by, not_before, id, itself."""

Head = tuple[int, int, float, int, int]
"""The first of a lane in the round's heap: start_by, not_before, load of its quota, id, lane."""


class Way(NamedTuple):
    """A lane with what a round asks of it again and again."""

    lane: Lane
    limits: tuple[str, ...]
    quota: str

    @classmethod
    def of(cls, lane: Lane) -> Way:
        return cls(lane, lane.limits, quota_limit(lane.tenant, lane.quota))


class Rounds:
    """The board of the node that holds the dispatch lock."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.changes = -1
        self.lanes: dict[int, Lane] = {}
        self._ways: dict[int, Way] = {}
        self._limits: dict[str, Limit] = {}
        self._has_rated_limit = self._has_rated_lane = False
        self._lanes_asked = 0
        self._clear()

    def forget(self) -> None:
        self.epoch = None
        self.changes = -1
        self._clear()

    def rebuild(self, ready: Sequence[Ready], seated: Sequence[Seated]) -> None:
        self._clear()
        for seat in seated:
            self._sit(seat)
        self._unsorted += [item for item in ready if item.item_id not in self._seats]
        self._waiting |= {item.item_id: item.attempt for item in self._unsorted}

    def set_limits(self, limits: Sequence[Limit]) -> None:
        self._limits = {limit.name: limit for limit in limits}
        self._has_rated_limit = any(limit.rate is not None for limit in limits)

    def take(self, arrivals: Sequence[Arrival]) -> None:
        for arrival in arrivals:
            for item in arrival.ready:
                self._return(item)
            for item_id in arrival.item_ids:
                self._stand(item_id)
                self._waiting.pop(item_id, None)
            for item_id, attempt in arrival.left:
                self._leave(item_id, attempt)

    def plan(self, now_us: int, targets: Sequence[Target], batch_max: int) -> RoundPlan:
        self._awake(now_us)
        free = _Free(targets, self._on_node)
        room = Room(self._limits, self._running, now_us)
        given: list[Given] = []
        heads = [self._head(lane_id, room) for lane_id in self._lanes_waiting()]
        heapq.heapify(heads)
        starved = False
        while heads and len(given) < batch_max and room.is_open:
            start_by, not_before, load, item_id, lane_id = heads[0]
            way = self._ways[lane_id]
            now_load = room.load(way)
            if now_load > load:  # its quota got something meanwhile: others of the same times may come first now
                heapq.heapreplace(heads, (start_by, not_before, now_load, item_id, lane_id))
                continue
            item = self._heaps[lane_id][0][3]
            admitted = room.admits(way)
            node_id = free.best(way.lane, item.avoid_id) if admitted else None
            if node_id is None:
                starved = starved or admitted
                heapq.heappop(heads)  # what holds the first of a lane back holds back all of it
                continue
            heapq.heappop(self._heaps[lane_id])
            given.append(self._give(item, way, node_id, free, room))
            if self._skip_dead(lane_id):
                heapq.heapreplace(heads, self._head(lane_id, room))
            else:
                heapq.heappop(heads)
        return RoundPlan(given, room.changed(), self._next_us(room, starved=starved))

    def refused(self, item_ids: Sequence[int]) -> None:
        for item_id in item_ids:
            self._stand(item_id)

    @property
    def waiting(self) -> int:
        """How many items wait for their turn."""
        return len(self._waiting)

    @property
    def is_rated(self) -> bool:
        if len(self.lanes) != self._lanes_asked:  # lanes never change, and none is forgotten
            self._lanes_asked = len(self.lanes)
            self._has_rated_lane = any(lane.job_rate is not None for lane in self.lanes.values())
        return self._has_rated_limit or self._has_rated_lane

    @property
    def is_pressed(self) -> bool:
        """Whether items whose time has come are held back, or may be: a seat that is given back could be theirs."""
        return bool(self._heaps or self._unsorted)

    @property
    def seated(self) -> int:
        return len(self._seats)

    def _clear(self) -> None:
        self._heaps: dict[int, list[Waiting]] = defaultdict(list)
        self._unsorted: list[Ready] = []
        """What a rebuild brought: sorted by the next round, which knows the time."""
        self._future: list[tuple[int, int, Ready]] = []
        self._now_us = 0
        """The latest instant of a round."""
        self._waiting: dict[int, int] = {}
        """The attempts that the waiting items have behind them, by item: entries of heaps that differ are dead."""
        self._seats: dict[int, Seated] = {}
        self._running: Counter[str] = Counter()
        self._on_node: Counter[int] = Counter()

    def _return(self, item: Ready) -> None:
        """An item became ready: its seat is free, unless it was given out again since."""
        seat = self._seats.get(item.item_id)
        if seat is None or seat.attempt <= item.attempt:
            self._stand(item.item_id)
            self._wait(item)

    def _wait(self, item: Ready) -> None:
        if self._waiting.get(item.item_id, -1) >= item.attempt or item.item_id in self._seats:
            return
        self._waiting[item.item_id] = item.attempt
        if item.not_before <= self._now_us:
            self._join(item)
        else:
            heapq.heappush(self._future, (item.not_before, item.item_id, item))

    def _join(self, item: Ready) -> None:
        heapq.heappush(self._heaps[item.lane_id], (item.start_by, item.not_before, item.item_id, item))

    def _awake(self, now_us: int) -> None:
        """Let items whose time has come join their lanes."""
        self._now_us = now_us
        if self._unsorted:
            self._sort()
        while self._future and self._future[0][0] <= now_us:
            self._join(heapq.heappop(self._future)[2])

    def _sort(self) -> None:
        """Put many items where they belong at once: cheaper than one by one."""
        for item in self._unsorted:
            if item.not_before <= self._now_us:
                self._heaps[item.lane_id].append((item.start_by, item.not_before, item.item_id, item))
            else:
                self._future.append((item.not_before, item.item_id, item))
        self._unsorted = []
        for heap in self._heaps.values():
            heapq.heapify(heap)
        heapq.heapify(self._future)

    def _lanes_waiting(self) -> list[int]:
        return [lane_id for lane_id in list(self._heaps) if self._skip_dead(lane_id)]

    def _skip_dead(self, lane_id: int) -> bool:
        """Drop what was cancelled from the front of a lane; says whether something is left."""
        heap = self._heaps[lane_id]
        while heap and self._waiting.get(heap[0][2]) != heap[0][3].attempt:
            heapq.heappop(heap)
        if not heap:
            del self._heaps[lane_id]
        return bool(heap)

    def _way(self, lane_id: int) -> Way:
        way = self._ways.get(lane_id)
        if way is None:
            way = self._ways[lane_id] = Way.of(self.lanes[lane_id])
        return way

    def _head(self, lane_id: int, room: Room) -> Head:
        start_by, not_before, item_id, _ = self._heaps[lane_id][0]
        return start_by, not_before, room.load(self._way(lane_id)), item_id, lane_id

    def _give(self, item: Ready, way: Way, node_id: int, free: _Free, room: Room) -> Given:
        del self._waiting[item.item_id]
        self._sit(Seated(item.item_id, item.lane_id, node_id, item.attempt + 1))
        free.take(node_id)
        room.take(way)
        return Given(item, node_id)

    def _sit(self, seat: Seated) -> None:
        self._seats[seat.item_id] = seat
        for name in self._way(seat.lane_id).limits:
            self._running[name] += 1
        if seat.node_id is not None:
            self._on_node[seat.node_id] += 1

    def _stand(self, item_id: int) -> None:
        seat = self._seats.pop(item_id, None)
        if seat is not None:
            for name in self._way(seat.lane_id).limits:
                self._running[name] -= 1
            if seat.node_id is not None:
                self._on_node[seat.node_id] -= 1

    def _leave(self, item_id: int, attempt: int) -> None:
        """An attempt goes on without its node's seat. Of an earlier one than the present this is old news."""
        seat = self._seats.get(item_id)
        if seat is not None and seat.node_id is not None and seat.attempt == attempt:
            self._stand(item_id)
            self._sit(Seated(item_id, seat.lane_id, None, attempt))

    def _next_us(self, room: Room, *, starved: bool) -> int | None:
        """When to look again. A node whose lease is renewed after a pause makes no arrival, so what found no executor
        is looked at again by itself."""
        instants = [self._future[0][0]] if self._future else []
        instants += [self._now_us + STARVED_US] if starved else []
        instants += [at for lane_id in self._heaps if (at := room.opens_at(self._way(lane_id))) is not None]
        return min(instants, default=None)


class Room:
    """How much the limits still allow in this round. `running` counts what runs, what the round gives included."""

    def __init__(self, limits: dict[str, Limit], running: Mapping[str, int], now_us: int) -> None:
        self._limits = limits
        self._running = running
        self._now_us = now_us
        self._started: set[str] = set()
        self._caps = {name: limit.cap for name, limit in limits.items() if limit.cap is not None}
        if GLOBAL not in limits:
            self._caps[GLOBAL] = CAPACITY
        self._rated = frozenset(
            name for name, limit in limits.items() if limit.rate is not None and not name.startswith(JOB)
        )

    @property
    def is_open(self) -> bool:
        """Whether the global cap leaves room for anything at all."""
        cap = self._caps.get(GLOBAL)
        return cap is None or self._running.get(GLOBAL, 0) < cap

    def admits(self, way: Way) -> bool:
        return self.full(way) is None

    def full(self, way: Way) -> str | None:
        """The first limit of a lane that allows no more now."""
        for name in way.limits:
            cap = self._caps.get(name) if name[:4] != JOB else way.lane.job_cap
            if cap is not None and self._running.get(name, 0) >= cap:
                return name
            limit = self._rate_of(name, way)
            if limit is not None and free_at(limit, self._now_us) > self._now_us:
                return name
        return None

    def load(self, way: Way) -> float:
        """How much runs in the lane's quota, by its weight."""
        limit = self._limits.get(way.quota)
        return self._running.get(way.quota, 0) / (1 if limit is None else limit.weight)

    def take(self, way: Way) -> None:
        """Count a start against the rates."""
        for name in way.limits:
            limit = self._rate_of(name, way)
            if limit is not None:
                self._limits[name] = remember(limit, self._now_us)
                self._started.add(name)

    def changed(self) -> list[Limit]:
        """The limits that remember more than before."""
        return [self._limits[name] for name in sorted(self._started)]

    def opens_at(self, way: Way) -> int | None:
        """When the rates of a lane allow a start again; none if they do now."""
        limits = (self._rate_of(name, way) for name in way.limits)
        instants = (free_at(limit, self._now_us) for limit in limits if limit is not None)
        return max((at for at in instants if at > self._now_us), default=None)

    def _rate_of(self, name: str, way: Way) -> Limit | None:
        """The limit of that name if it has a rate. A job's own is what the item's version of it says; only the memory
        of starts is kept apart."""
        if name in self._rated:
            return self._limits[name]
        if way.lane.job_rate is None or name[:4] != JOB:
            return None
        kept = self._limits.get(name)
        return Limit(name=name, rate=way.lane.job_rate, recent=() if kept is None else kept.recent)


class _Free:
    """The free seats of the executors."""

    def __init__(self, targets: Sequence[Target], taken: Counter[int]) -> None:
        self._left = {target.node_id: target.seats - taken[target.node_id] for target in targets}
        self._targets = targets
        self._able: dict[tuple[str, str], list[Target]] = {}

    def best(self, lane: Lane, avoid_id: int | None) -> int | None:
        """The executor with the most free seats; then the least busy; then the first by name. One that is to be
        avoided only if there is no other."""
        left = self._left
        best: int | None = None
        most = 0
        for target in self._able_to(lane):  # in order of their busy scores and names
            node_id = target.node_id
            if left[node_id] > most and node_id != avoid_id:
                best, most = node_id, left[node_id]
        if best is None and avoid_id is not None:
            return self.best(lane, None)
        return best

    def take(self, node_id: int) -> None:
        self._left[node_id] -= 1

    def _able_to(self, lane: Lane) -> list[Target]:
        key = (lane.group, lane.handler)
        if key not in self._able:
            able = [it for it in self._targets if it.group == lane.group and can_run(it.handlers, lane.handler)]
            self._able[key] = sorted(able, key=lambda it: (it.busy, it.name, it.node_id))
        return self._able[key]


def can_run(handlers: frozenset[str], handler: str) -> bool:
    """Whether a node has a handler: by its name, or by the module of a function (`reports.daily:send`)."""
    return not handler or handler in handlers or f"{handler.partition(':')[0]}:*" in handlers


def _cap(limit: Limit) -> float:
    return float("inf") if limit.cap is None else limit.cap


class State(NamedTuple):
    """Everything that a round depends on."""

    now_us: int
    ready: Sequence[Ready]
    seated: Sequence[Seated]
    lanes: dict[int, Lane]
    limits: Sequence[Limit]
    targets: Sequence[Target]


def plain_round(state: State, batch_max: int) -> list[Given]:
    """The rule in its shortest form: again and again the first of all that may start."""
    limits = {limit.name: limit for limit in state.limits}
    ways = {lane_id: Way.of(lane) for lane_id, lane in state.lanes.items()}
    seated = list(state.seated)
    left = [item for item in state.ready if item.not_before <= state.now_us]
    given: list[Given] = []
    while len(given) < batch_max:
        room = Room(limits, Counter(name for seat in seated for name in ways[seat.lane_id].limits), state.now_us)
        free = _Free(state.targets, Counter(seat.node_id for seat in seated if seat.node_id is not None))
        able = [
            (item.start_by, item.not_before, room.load(ways[item.lane_id]), item.item_id, item, node_id)
            for item in left
            if room.admits(ways[item.lane_id])
            and (node_id := free.best(state.lanes[item.lane_id], item.avoid_id)) is not None
        ]
        if not able:
            break
        *_, first, node_id = min(able, key=lambda it: it[:4])
        room.take(ways[first.lane_id])
        left.remove(first)
        seated.append(Seated(first.item_id, first.lane_id, node_id))
        given.append(Given(first, node_id))
    return given
