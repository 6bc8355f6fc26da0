"""The rule of a dispatch round in its shortest form, for the board to be compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rota.core.dispatch.board import FreeSeats
from rota.core.dispatch.room import Room, Way
from rota.model.dispatch import Given, Ready, Seated, Target
from rota.model.work import Lane, Limit


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
        running = Counter(name for seat in seated for name in ways[seat.lane_id].limits)
        room = Room(limits, running, state.now_us)
        load = {lane_id: running[way.quota] / room.weight(way) for lane_id, way in ways.items()}
        free = FreeSeats(state.targets, Counter(seat.node_id for seat in seated if seat.node_id is not None))
        able = [
            (item.start_by, item.not_before, load[item.lane_id], item.item_id, item, node_id)
            for item in left
            if room.full(ways[item.lane_id]) is None
            and (node_id := free.best(free.able_to(state.lanes[item.lane_id]), item.avoid_id)) is not None
        ]
        if not able:
            break
        *_, first, node_id = min(able, key=lambda it: it[:4])
        room.take(ways[first.lane_id])
        left.remove(first)
        seated.append(Seated(first.item_id, first.lane_id, node_id))
        given.append(Given(first, node_id))
    return given
