"""Explain in plain words what every item of a run waits for. Decides nothing.

The same things are looked at, in the same order, as in a dispatch round: the item's own time, its limits, the executors
that could run it. Whatever holds an item back is told, not only the first of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec

from rota.core.dispatch.board import can_run
from rota.core.dispatch.rate import free_at, unbegun
from rota.core.dispatch.versions import is_newer
from rota.core.lease import is_live
from rota.model.listener import is_listener
from rota.model.moment import micros, moment
from rota.model.node import UNABLE, UNREACHABLE, Node, NodeState
from rota.model.run import Item
from rota.model.standing import ItemStanding, Standing
from rota.model.states import ItemState, RunState
from rota.model.value import Value
from rota.model.work import CAPACITY, GLOBAL, JOB, LATE, AttemptRecord, Lane, Limit, quota_limit


class Why(StrEnum):
    """What holds an item back, where it is, or why it is over."""

    ENDED = "ended"
    FAILED = "failed"
    OVERLAP = "overlap"
    NOT_DUE = "not_due"
    BACKOFF = "backoff"
    CAP = "cap"
    RATE = "rate"
    NO_EXECUTOR = "no_executor"
    NO_HANDLER = "no_handler"
    NO_SEAT = "no_seat"
    UNREACHABLE = "unreachable"
    NEXT = "next"
    ASSIGNED = "assigned"
    RUNNING = "running"
    OUTSIDE = "outside"


class Reason(Value, frozen=True, kw_only=True):
    """Where one item stands, or, without an item, the run as a whole. `until_at`: when it changes by itself."""

    why: Why
    text: str
    item_id: int | None = None
    task: str = ""
    index: int = 0
    number: str | None = None
    until_at: datetime | None = None


class _Hold(NamedTuple):
    why: Why
    text: str
    until_at: datetime | None = None


def explain(standing: Standing) -> tuple[Reason, ...]:
    """One reason for a run as a whole, or one for each of its live items, in their order."""
    run = standing.run
    if run is None:
        return ()
    if not run.state.live:
        reason = f" ({run.reason})" if run.reason else ""
        return (Reason(why=Why.ENDED, text=f"the run is over: {run.state}{reason} at {_at(run.ended_at)}"),)
    if run.state is RunState.WAITING:
        return (Reason(why=Why.OVERLAP, text=_overlap(standing.before)),)
    return tuple(_reason(place, standing) for place in standing.places)


def failures(items: Iterable[Item], attempts: Iterable[AttemptRecord]) -> Iterator[Reason]:
    """Why a run has failed: what the last attempt at each item that failed ended with, whole."""
    last = {it.item_id: it for it in attempts}
    for item in items:
        if item.state is ItemState.FAILED:
            yield _about(item, Why.FAILED, _failure(item, last.get(item.id)))


def _failure(item: Item, last: AttemptRecord | None) -> str:
    if last is None:
        return item.message or "failed before it was begun"
    node = f" on node {last.node}" if last.node else ""
    why = item.message or last.message or ("it said nothing" if last.code is None else f"exit code {last.code}")
    return f"attempt {last.attempt}{node} {last.outcome} at {_at(last.ended_at)}: {why}"


def _reason(place: ItemStanding, standing: Standing) -> Reason:
    holds = [_seat(place, standing)] if place.queued.state is not ItemState.READY else list(_holds(place, standing))
    if not holds:
        holds = [_Hold(Why.NEXT, f"may start now, in the next round; {_ahead(place)}")]
    text = "; ".join(hold.text for hold in holds)
    if place.queued.cancel_at is not None:
        text += f"; it was asked to stop at {_at(place.queued.cancel_at)}"
    return _about(place.item, holds[0].why, text, holds[0].until_at)


def _about(item: Item, why: Why, text: str, until_at: datetime | None = None) -> Reason:
    return Reason(
        why=why,
        text=text,
        item_id=item.id,
        task=item.task,
        index=item.index,
        number=item.number,
        until_at=until_at,
    )


def _overlap(before: tuple[int, ...]) -> str:
    if not before:
        return "waits by the overlap policy of its job; nothing is before it any more, so it starts at the next end"
    runs = ", ".join(str(run_id) for run_id in before[:10]) + (", …" if len(before) > 10 else "")
    return f"waits by the overlap policy of its job for {'runs' if len(before) > 1 else 'run'} {runs} to end"


def _seat(place: ItemStanding, standing: Standing) -> _Hold:
    queued = place.queued
    names = {node.id: node.joined.name for node in standing.nodes}
    if queued.node_id is None:
        until = f", until {_at(queued.expires_at)}" if queued.expires_at else ""
        return _Hold(
            Why.OUTSIDE,
            f"started at {_at(queued.started_at)} (attempt {queued.attempt}); waits to be finished from outside{until}",
            queued.expires_at,
        )
    node = f"node {names.get(queued.node_id, queued.node_id)}"
    if queued.state is ItemState.ASSIGNED:
        return _Hold(Why.ASSIGNED, f"was given to {node} at {_at(queued.assigned_at)} (attempt {queued.attempt})")
    return _Hold(Why.RUNNING, f"runs on {node} since {_at(queued.started_at)} (attempt {queued.attempt})")


def _holds(place: ItemStanding, standing: Standing) -> Iterator[_Hold]:
    """Return everything that keeps a ready item from starting now."""
    due = place.queued.not_before_at
    if due > standing.now:
        yield _not_yet(place, due)
        return
    limits = {limit.name: limit for limit in standing.limits}
    for name in place.lane.limits:
        yield from _limit(name, place, limits, standing)
    yield from _executors(place.lane, standing)


def _not_yet(place: ItemStanding, due: datetime) -> _Hold:
    behind = place.queued.failures
    if behind:
        times = f"{behind} failed attempt{'s' if behind > 1 else ''}"
        return _Hold(Why.BACKOFF, f"is tried again at {_at(due)}, after {times}", due)
    return _Hold(Why.NOT_DUE, f"is not due until {_at(due)}", due)


def _limit(name: str, place: ItemStanding, limits: dict[str, Limit], standing: Standing) -> Iterator[_Hold]:
    limit = _limit_of(name, place.lane, limits)
    if limit is None:
        return
    running = standing.running.get(name, 0)
    if limit.cap is not None and running >= limit.cap:
        yield _Hold(Why.CAP, f"{_words(name, place.lane)} is full: {running} of {limit.cap} run; {_ahead(place)}")
    if limit.rate is not None and (free := free_at(limit, micros(standing.now))) > micros(standing.now):
        rate = f"{limit.rate.max} starts in {limit.rate.period_s:g} s"
        text = f"the rate of {_words(name, place.lane)} ({rate}) "
        if unbegun(limit) >= limit.rate.max:
            yield _Hold(Why.RATE, f"{text}waits for what was given to begin")
        else:
            yield _Hold(Why.RATE, f"{text}allows the next start at {_at(moment(free))}", moment(free))


def _limit_of(name: str, lane: Lane, limits: dict[str, Limit]) -> Limit | None:
    """A job's own limit is what the item's version of the job says, as in a round."""
    kept = limits.get(name)
    if name == GLOBAL:
        return kept or Limit(name=GLOBAL, cap=CAPACITY)
    if name.startswith(JOB):
        return msgspec.structs.replace(kept or Limit(name=name), cap=lane.job_cap, rate=lane.job_rate)
    if name.startswith(LATE):
        return msgspec.structs.replace(kept or Limit(name=name), rate=lane.late_rate)
    return kept


def _words(name: str, lane: Lane) -> str:
    if name == GLOBAL:
        return "the global limit"
    if name == quota_limit(lane.tenant, lane.quota):
        return f"the quota {lane.quota} of tenant {lane.tenant}"
    if name.startswith(JOB):
        return "the limit of the job"
    if name.startswith(LATE):
        return "the misfire policy of the job"
    return f"the resource {name.removeprefix('resource:')}"


def _ahead(place: ItemStanding) -> str:
    if not place.ahead:
        return "it is the first in line"
    return f"place {place.ahead + 1} in line, {place.ahead} before it, {place.ahead_in_quota} of them of its quota"


def _executors(lane: Lane, standing: Standing) -> Iterator[_Hold]:
    group = [node for node in _alive(standing) if node.joined.seats > 0 and node.joined.group == lane.group]
    if not group:
        yield _Hold(Why.NO_EXECUTOR, _nobody(lane, standing))
        return
    able = [node for node in group if can_run(frozenset(node.joined.handlers), lane.needs)]
    if not able:
        missing = f"no executor of the group {lane.group} has {_handler(lane.needs)}"
        yield _Hold(Why.NO_HANDLER, f"{missing}; {_remedy(lane.needs)}")
        return
    if lane.newer_than:
        able = [node for node in able if is_newer(node.joined.version, lane.newer_than)] or able
    taking = [node for node in able if node.state is NodeState.ONLINE]
    if not taking:
        yield _Hold(Why.NO_EXECUTOR, f"all executors that could run it are drained: {_names(able)}")
        return
    if all(UNABLE in node.joined.digests for node in taking):
        why = "; ".join(f"{_names([node])}: {node.joined.digests[UNABLE]}" for node in taking[:3])
        yield _Hold(Why.NO_EXECUTOR, f"no executor that could run it can execute anything at present ({why})")
        return
    taking = [node for node in taking if UNABLE not in node.joined.digests]
    seats = sum(node.joined.seats for node in taking)
    free = [node for node in taking if standing.seated.get(node.id, 0) < node.joined.seats]
    if not free:
        yield _Hold(Why.NO_SEAT, f"all {seats} seats of {_names(taking)} are taken")
        return
    observers = {node.id: _observers(node, standing) for node in free}
    if all(observers.values()):
        seen = _names(by for its in observers.values() for by in its)
        text = f"{_names(free)} would have a seat, but cannot be reached by {seen}"
        yield _Hold(Why.UNREACHABLE, text)


def _observers(node: Node, standing: Standing) -> list[Node]:
    """The nodes that cannot reach this one; while one of them makes the rounds, it is given nothing."""
    return [it for it in _alive(standing) if str(node.id) in it.joined.digests.get(UNREACHABLE, "").split()]


def _alive(standing: Standing) -> list[Node]:
    there = (NodeState.ONLINE, NodeState.DRAINING)
    return [node for node in standing.nodes if node.state in there and is_live(node, standing.now)]


def _handler(handler: str) -> str:
    if is_listener(handler):
        app, _, name = handler.partition(":")[2].rpartition("/")
        return f"an app of {app} with {name}"
    return f"the function {handler}" if ":" in handler else f"the handler {handler}"


def _remedy(handler: str) -> str:
    module, _, function = handler.partition(":")
    if function and not is_listener(handler):
        return f"a node may import it if executor.modules names {module} (ROTA_EXECUTOR_MODULES={module})"
    return "start a node with the file of its app: rota node start --app FILE"


def _nobody(lane: Lane, standing: Standing) -> str:
    alive = [node for node in _alive(standing) if node.joined.group == lane.group]
    if alive:
        return f"no node of the group {lane.group} executes: executor.seats of {_names(alive)} is 0"
    if not _alive(standing):
        return "no node is running: start one with rota up FILE, or rota node start"
    others = sorted({node.joined.group for node in _alive(standing) if node.joined.seats > 0})
    there = f"; there are executors in {', '.join(others[:5])}" if others else ""
    return f"there is no executor in the group {lane.group} (executor.group of a node says where it belongs){there}"


def _names(nodes: Iterable[Node]) -> str:
    names = sorted({node.joined.name for node in nodes})
    shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    return f"{'nodes' if len(names) > 1 else 'node'} {shown}"


def _at(instant: datetime | None) -> str:
    return "-" if instant is None else instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
