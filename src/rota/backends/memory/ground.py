"""What the store in memory holds, and the small steps by which all verbs change it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import NamedTuple

import msgspec

from rota.backends.alarming import alarms_of
from rota.backends.record import Place
from rota.model.alarm import Alarm, AlarmRule
from rota.model.cluster import Drain, Hold
from rota.model.dispatch import Arrival, ArrivalKind, Grant, Ready
from rota.model.job import Definition, Job, JobName
from rota.model.moment import micros
from rota.model.node import Node
from rota.model.run import Event, Item, Run, RunKey
from rota.model.states import ItemState, Outcome
from rota.model.value import Json
from rota.model.work import AttemptRecord, Lane, Limit, Queued
from rota.ports import Clock


class Lock(NamedTuple):
    """What the rounds share."""

    holder: int | None = None
    epoch: int = 0
    round: int = 0
    changes: int = 0
    next_us: int | None = None


class Ground:
    """All that there is."""

    def __init__(self, clock: Clock, *, actor: str) -> None:
        self._clock = clock
        self._actor = actor
        self._run_ids = count(1)
        self._row_ids = count(1)
        self._job_ids = count(1)
        self._node_ids = count(1)
        self._jobs: dict[int, Job] = {}
        self._names: dict[JobName, int] = {}
        self._versions: dict[tuple[int, int], Definition] = {}
        self._runs: dict[int, Run] = {}
        self._keys: dict[RunKey, int] = {}
        self._live: dict[str, dict[int, Run]] = defaultdict(dict)
        """Live runs by overlap key, oldest first."""
        self._items: dict[int, Item] = {}
        self._items_of: dict[int, list[int]] = defaultdict(list)
        self._numbers: dict[tuple[str, str], int] = {}
        self._queue: dict[int, Queued] = {}
        self._attempts: dict[int, list[AttemptRecord]] = defaultdict(list)
        self._lanes: dict[int, Lane] = {}
        self._lane_ids: dict[Lane, int] = {}
        self._new_lane_ids = count(1)
        self._limits: dict[str, Limit] = {}
        self._starts: dict[str, Limit] = {}
        """What is remembered of the starts of jobs with a rate."""
        self._lock = Lock()
        self._generation = 1
        self._unsettled: dict[int, int] = {}
        """Nodes that may execute what was lost, and since when (microseconds)."""
        self._raised: tuple[datetime, str] | None = None
        self._arrivals: list[tuple[int, Arrival]] = []
        self._grants: dict[int, list[Grant]] = defaultdict(list)
        self._nodes: dict[int, Node] = {}
        self._fenced: set[int] = set()
        self._drained: dict[str, Drain] = {}
        self._node_numbers: dict[str, dict[str, int]] = {}
        self._holds: dict[tuple[str, str], Hold] = {}
        self._placed_revision = 1
        self._events: list[Event] = []
        self._alarm_rules: dict[str, AlarmRule] = {}
        self._alarms: dict[str, Alarm] = {}
        self._wakes: list[Callable[[str], None]] = []

    @property
    def unread(self) -> Mapping[str, str]:
        """It holds values, and only of this release."""
        return {}

    def _is_held(self, job: Job) -> bool:
        return any(it.covers(job.definition.full_name) for it in self._holds.values())

    def listen(self, wake: Callable[[str], None]) -> None:
        self._wakes.append(wake)

    def _now_us(self) -> int:
        return micros(self._clock.wall())

    def _shown(self, item: Item) -> Item:
        """An item with the state that the queue has of it, if it is live."""
        queued = self._queue.get(item.id)
        return item if queued is None else msgspec.structs.replace(item, state=queued.state)

    def _shown_of(self, run_ids: Iterable[int]) -> list[Item]:
        found = [self._items[it] for run_id in run_ids for it in self._items_of.get(run_id, ())]
        return [self._shown(item) for item in sorted(found, key=lambda it: (it.run_id, it.task, it.index))]

    def _lane_id(self, lane: Lane) -> int:
        if lane not in self._lane_ids:
            self._lane_ids[lane] = next(self._new_lane_ids)
            self._lanes[self._lane_ids[lane]] = lane
        return self._lane_ids[lane]

    def _enqueue(self, places: Iterable[Place]) -> None:
        ready = []
        for place in places:
            it = place.ready(self._lane_id(place.lane))
            ready.append(it)
            self._queue[it.item_id] = Queued(
                item_id=it.item_id,
                run_id=it.run_id,
                job_id=it.job_id,
                lane_id=it.lane_id,
                state=ItemState.READY,
                start_by_at=place.item.start_by_at,
                not_before_at=place.item.not_before_at,
                hold_s=place.hold_s,
            )
        self._tell(ArrivalKind.READY, ready=ready)

    def _tell(
        self,
        kind: ArrivalKind,
        *,
        ready: Sequence[Ready] = (),
        item_ids: Sequence[int] = (),
        left: Sequence[tuple[int, int]] = (),
    ) -> None:
        if ready or item_ids or left:
            self._arrivals.append((self._now_us(), Arrival(kind, ready, item_ids, left)))
            self._wake("seats" if kind in (ArrivalKind.ENDED, ArrivalKind.OUTSIDE) else "dispatch")

    def _nudge(self) -> None:
        """Something changed that is about no item."""
        self._arrivals.append((self._now_us(), Arrival(ArrivalKind.ENDED)))
        self._wake("dispatch")

    def _wake(self, topic: str) -> None:
        for wake in self._wakes:
            wake(topic)

    def _change(self, item_id: int, **fields: object) -> Queued:
        self._queue[item_id] = msgspec.structs.replace(self._queue[item_id], **fields)
        return self._queue[item_id]

    def _end_item(self, item_id: int, state: ItemState, now: datetime, **more: str | None) -> None:
        self._queue.pop(item_id, None)
        self._items[item_id] = msgspec.structs.replace(self._items[item_id], state=state, ended_at=now, **more)

    def _withdraw(self, item_ids: Sequence[int], now: datetime) -> None:
        """Cancel items that no node was given."""
        waiting = [item_id for item_id in item_ids if item_id in self._queue]
        for item_id in item_ids:
            self._end_item(item_id, ItemState.CANCELLED, now)
        self._tell(ArrivalKind.GONE, item_ids=waiting)

    def _record(
        self, kind: str, data: dict[str, Json], *, job_id: int | None = None, run_id: int | None = None
    ) -> None:
        at = self._clock.wall()
        line = Event(
            id=next(self._row_ids), at=at, kind=kind, actor=self._actor, job_id=job_id, run_id=run_id, data=data
        )
        self._events.append(line)
        self._note([line])

    def _note(self, events: Iterable[Event]) -> None:
        """Raise the alarms among lines of history, if anybody wants to know of alarms at all."""
        if self._alarm_rules:
            self._raise(alarms_of(events))

    def _raise(self, alarms: Iterable[Alarm]) -> None:
        for it in alarms:
            if it.key not in self._alarms:
                self._alarms[it.key] = msgspec.structs.replace(it, id=next(self._row_ids))

    def _ask_to_stop(self, run_ids: Iterable[int]) -> tuple[int, int]:
        """Cancel at once what of these runs has no process; ask the rest to stop."""
        now = self._clock.wall()
        items = self._shown_of(run_ids)
        unstarted = [it.id for it in items if it.state in (ItemState.READY, ItemState.WAITING)]
        self._withdraw(unstarted, now)
        started = [self._queue[it.id] for it in items if it.id in self._queue]
        outside = [it for it in started if it.node_id is None]
        for it in outside:
            self._end_item(it.item_id, ItemState.CANCELLED, now)
            self._attempts[it.item_id].append(cancelled_attempt(it, now))
        self._tell(ArrivalKind.ENDED, item_ids=[it.item_id for it in outside])
        asked = [it for it in started if it.node_id is not None]
        for it in asked:
            self._change(it.item_id, cancel_at=it.cancel_at or now)
            self._wake(f"node:{it.node_id}")
        return len(unstarted) + len(outside), len(asked)


def cancelled_attempt(queued: Queued, now: datetime, node: str = "") -> AttemptRecord:
    """The attempt at an item that its client, or a node that leaves, did not finish before it was cancelled."""
    return AttemptRecord(
        item_id=queued.item_id,
        attempt=queued.attempt,
        node=node,
        round=queued.round,
        assigned_at=queued.assigned_at,
        started_at=queued.started_at,
        ended_at=now,
        outcome=Outcome.CANCELLED,
    )


def ready_of(queued: Queued) -> Ready:
    """What a round must know of an item of the queue that is ready."""
    return Ready(
        queued.item_id,
        queued.run_id,
        queued.job_id,
        queued.lane_id,
        micros(queued.start_by_at),
        micros(queued.not_before_at),
        queued.attempt,
        queued.failures,
        queued.losses,
        queued.avoid_id,
    )
