"""Decide a dispatch round: which ready items start now, in which order, and where.

An item may start when its time has come, none of its limits is full, and an executor of its group that has its handler
has a free seat. Of those that may, the next is the one with the earliest `start_by`; then the earliest `not_before`;
then the one whose quota has the least running per weight; then the oldest. An item is passed over only while it may not
start. `Rounds` keeps heaps, so that a round costs what it gives, not what waits; tests compare it with the same rule in
its shortest form.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from rota.core.dispatch.rate import begin, unbegun
from rota.core.dispatch.room import Room, Way
from rota.core.dispatch.versions import is_newer
from rota.model.dispatch import Arrival, Given, Ready, RoundPlan, Seated, Target
from rota.model.listener import is_listener
from rota.model.work import Lane, Limit

STARVED_US = 1_000_000
"""When to look again for an executor, if none could take what may start."""

Waiting = tuple[int, int, int, Ready]
"""An item in its lane's heap: start_by, not_before, id, itself."""

Head = tuple[int, int, float, int, int]
"""The first of a lane in the round's heap: start_by, not_before, load of its quota, id, lane."""


class Rounds:
    """The board of the node that holds the dispatch lock."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.round = 0
        self.changes = -1
        self.lanes: dict[int, Lane] = {}
        self.unreachable: frozenset[int] = frozenset()
        """Nodes that are given nothing, for this one cannot reach them; kept when the board is forgotten."""
        self.is_cut_off = False
        """Whether something waits that only such a node could run: then another node had better make the rounds."""
        self._ways: dict[int, Way] = {}
        self._limits: dict[str, Limit] = {}
        self._has_rated_limit = self._has_rated_lane = False
        self._lanes_asked = 0
        self._clear()

    def forget(self) -> None:
        self.epoch = None
        self.round = 0
        self.changes = -1
        self.lanes = {}
        self._ways = {}
        self._lanes_asked = 0
        self._has_rated_lane = False
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

    @property
    def unbegun(self) -> Collection[int]:
        """Return the items that count against a rate and are not known to have begun."""
        return self._unbegun if self.is_rated else ()

    def begin(self, starts: Sequence[tuple[int, int, int]]) -> None:
        """Learn when attempts have begun: item, attempt, instant."""
        for item_id, attempt, at_us in starts:
            seat = self._seats.get(item_id)
            if seat is not None and seat.attempt == attempt and item_id in self._unbegun:
                self._begun.append((seat.lane_id, self._unbegun.pop(item_id), at_us))

    def plan(self, now_us: int, targets: Sequence[Target], batch_max: int) -> RoundPlan:
        self._awake(now_us)
        free = FreeSeats([it for it in targets if it.node_id not in self.unreachable], self._on_node)
        far = FreeSeats([it for it in targets if it.node_id in self.unreachable], self._on_node)
        self.is_cut_off = False
        room = Room(self._limits, self._running, now_us, self._date_starts(now_us))
        given: list[Given] = []
        turns = {lane_id: self._turn(lane_id, room, free) for lane_id in list(self._heaps) if self._skip_dead(lane_id)}
        heads = [turn.head() for turn in turns.values()]
        heapq.heapify(heads)
        starved = False
        while heads and len(given) < batch_max and room.is_open:
            start_by, not_before, load, item_id, lane_id = heads[0]
            turn = turns[lane_id]
            now_load = turn.load()
            if now_load > load:  # its quota got something meanwhile: others of the same times may come first now
                heapq.heapreplace(heads, (start_by, not_before, now_load, item_id, lane_id))
                continue
            item = turn.heap[0][3]
            admitted = turn.is_admitted()
            node_id = free.best(turn.able, item.avoid_id) if admitted else None
            if node_id is None:
                starved = starved or admitted
                self.is_cut_off |= admitted and not turn.able and far.has(turn.way.lane)
                heapq.heappop(heads)  # what holds the first of a lane back holds back all of it
                continue
            heapq.heappop(turn.heap)
            given.append(self._give(item, node_id))
            free.take(node_id)
            if turn.is_rated:
                room.take(turn.way)
            if self._skip_dead(lane_id):
                heapq.heapreplace(heads, turn.head())
            else:
                heapq.heappop(heads)
        return RoundPlan(given, room.changed(), self._next_us(room, starved=starved))

    def refused(self, item_ids: Sequence[int]) -> None:
        for item_id in item_ids:
            self._stand(item_id)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_rated(self) -> bool:
        if len(self.lanes) != self._lanes_asked:  # lanes never change, and none is forgotten
            self._lanes_asked = len(self.lanes)
            self._has_rated_lane = any(lane.rates for lane in self.lanes.values())
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
        """What came since the last round: sorted by the next, which knows the time."""
        self._future: list[tuple[int, int, Ready]] = []
        self._now_us = 0
        """The latest instant of a round."""
        self._waiting: dict[int, int] = {}
        """The attempts that the waiting items have behind them, by item: entries of heaps that differ are dead."""
        self._seats: dict[int, Seated] = {}
        self._running: Counter[str] = Counter()
        self._on_node: Counter[int] = Counter()
        self._unbegun: dict[int, int] = {}
        """The seats, by item, that are not known to have begun, and when they were given."""
        self._begun: list[tuple[int, int, int]] = []
        """What has begun since the last round: lane, when it was given, when it began."""

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
        self._unsorted.append(item)

    def _awake(self, now_us: int) -> None:
        """Move items whose `not_before` has come to their lanes."""
        self._now_us = now_us
        future, heaps, push = self._future, self._heaps, heapq.heappush
        unsorted, self._unsorted = self._unsorted, []
        for item in unsorted:
            if item.not_before <= now_us:
                push(heaps[item.lane_id], (item.start_by, item.not_before, item.item_id, item))
            else:
                push(future, (item.not_before, item.item_id, item))
        while future and future[0][0] <= now_us:
            item = heapq.heappop(future)[2]
            push(heaps[item.lane_id], (item.start_by, item.not_before, item.item_id, item))

    def _skip_dead(self, lane_id: int) -> bool:
        """Drop cancelled items from the front of a lane. Returns True if an item is left."""
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

    def _turn(self, lane_id: int, room: Room, free: FreeSeats) -> _Turn:
        way = self._way(lane_id)
        return _Turn(lane_id, way, self._heaps[lane_id], self._running, room, free.able_to(way.lane))

    def _give(self, item: Ready, node_id: int) -> Given:
        del self._waiting[item.item_id]
        self._sit(Seated(item.item_id, item.lane_id, node_id, item.attempt + 1, self._now_us))
        return Given(item, node_id)

    def _sit(self, seat: Seated) -> None:
        self._seats[seat.item_id] = seat
        running = self._running
        for name in self._way(seat.lane_id).limits:
            running[name] += 1
        if seat.node_id is not None:
            self._on_node[seat.node_id] += 1
        if seat.given_us is not None:
            self._unbegun[seat.item_id] = seat.given_us

    def _stand(self, item_id: int) -> None:
        seat = self._seats.pop(item_id, None)
        self._unbegun.pop(item_id, None)
        if seat is not None:
            running = self._running
            for name in self._way(seat.lane_id).limits:
                running[name] -= 1
            if seat.node_id is not None:
                self._on_node[seat.node_id] -= 1

    def _leave(self, item_id: int, attempt: int) -> None:
        """An attempt goes on without its node's seat. Of an earlier one than the present this is old news."""
        seat = self._seats.get(item_id)
        if seat is not None and seat.node_id is not None and seat.attempt == attempt:
            self._stand(item_id)
            self._sit(Seated(item_id, seat.lane_id, None, attempt))

    def _date_starts(self, now_us: int) -> set[str]:
        """Date the starts that rates remember as given and that have begun since, or are over; says whose those are. An
        instant that cannot be right, by the store's clock, is taken for now."""
        begun, self._begun = self._begun, []
        if not self.is_rated:
            return set()
        instants: dict[str, list[int]] = defaultdict(list)
        for lane_id, given_us, at_us in begun:
            for name in self._way(lane_id).limits:
                instants[name].append(at_us if given_us <= at_us <= now_us else now_us)
        waiting = Counter(name for it in self._unbegun for name in self._way(self._seats[it].lane_id).limits)
        dated: set[str] = set()
        for name, limit in self._limits.items():
            count = unbegun(limit) - waiting[name]
            if count > 0:
                newest = sorted(instants[name])[-count:]
                self._limits[name] = begin(limit, [*newest, *[now_us] * (count - len(newest))])
                dated.add(name)
        return dated

    def _next_us(self, room: Room, *, starved: bool) -> int | None:
        """When to look again. A node whose lease is renewed after a pause makes no arrival, so what found no executor
        is looked at again by itself."""
        instants = [self._future[0][0]] if self._future else []
        instants += [self._now_us + STARVED_US] if starved else []
        instants += [at for lane_id in self._heaps if (at := room.opens_at(self._way(lane_id))) is not None]
        return min(instants, default=None)


class _Turn:
    """A lane in a round: its items in order, and what its next one needs."""

    __slots__ = ("_caps", "_lane_id", "_room", "_running", "_weight", "able", "heap", "is_rated", "way")

    def __init__(
        self, lane_id: int, way: Way, heap: list[Waiting], running: Mapping[str, int], room: Room, able: list[Target]
    ) -> None:
        self.way = way
        self.heap = heap
        self.able = able
        """The executors that can run its items, with or without a free seat."""
        self.is_rated = room.is_rated(way)
        self._lane_id = lane_id
        self._running = running
        self._room = room
        self._caps = room.caps(way)
        self._weight = room.weight(way)

    def load(self) -> float:
        """How much runs in the lane's quota, by its weight."""
        return self._running[self.way.quota] / self._weight

    def head(self) -> Head:
        start_by, not_before, item_id, _ = self.heap[0]
        return start_by, not_before, self._running[self.way.quota] / self._weight, item_id, self._lane_id

    def is_admitted(self) -> bool:
        """Whether no limit of the lane is full."""
        running = self._running
        for name, cap in self._caps:
            if running[name] >= cap:
                return False
        return not self.is_rated or self._room.full(self.way) is None


class FreeSeats:
    """The free seats of the executors."""

    def __init__(self, targets: Sequence[Target], taken: Counter[int]) -> None:
        self._left = {target.node_id: target.seats - taken[target.node_id] for target in targets}
        self._targets = targets
        self._able: dict[tuple[str, str, str], list[Target]] = {}

    def best(self, able: Sequence[Target], avoid_id: int | None) -> int | None:
        """The executor with the most free seats; then the least busy; then the first by name. One that is to be
        avoided only if there is no other."""
        left = self._left
        best: int | None = None
        most = 0
        for target in able:  # in order of their busy scores and names
            node_id = target.node_id
            if left[node_id] > most and node_id != avoid_id:
                best, most = node_id, left[node_id]
        if best is None and avoid_id is not None:
            return self.best(able, None)
        return best

    def has(self, lane: Lane) -> bool:
        """Whether there is an executor for this lane, with or without a free seat."""
        return bool(self.able_to(lane))

    def take(self, node_id: int) -> None:
        self._left[node_id] -= 1

    def able_to(self, lane: Lane) -> list[Target]:
        """The executors that can run the items of a lane, in order of their busy scores and names."""
        key = (lane.group, lane.needs, lane.newer_than)
        if key not in self._able:
            able = [it for it in self._targets if it.group == lane.group and can_run(it.handlers, lane.needs)]
            if lane.newer_than:  # if no newer one is there, whoever gets the item ends it, or hands it on later
                able = [it for it in able if is_newer(it.version, lane.newer_than)] or able
            self._able[key] = sorted(able, key=lambda it: (it.busy, it.name, it.node_id))
        return self._able[key]


def can_run(handlers: frozenset[str], handler: str) -> bool:
    """Whether a node has a handler: by its name, or by the module of a function (`reports.daily:send`)."""
    if not handler or handler in handlers:
        return True
    return not is_listener(handler) and f"{handler.partition(':')[0]}:*" in handlers
