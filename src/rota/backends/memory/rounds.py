"""Nodes, and the rounds that give them items."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count

import msgspec

from rota.backends.memory.ground import Lock, ready_of
from rota.backends.memory.reading import Reading
from rota.backends.numbers import number_of
from rota.backends.record import ID_GAP, LOST, RAISED
from rota.model.cluster import Role
from rota.model.dispatch import Board, Given, Grant, Granted, Pulse, Round, Seated, Target
from rota.model.moment import micros, moment
from rota.model.node import Joined, Members, NewNode, Node, NodeState, settle_us
from rota.model.states import ItemState
from rota.model.value import Json
from rota.model.work import Queued, first_round


class Rounds(Reading):
    """Who is there, and who gets what."""

    async def join(self, node: NewNode, *, lease_s: float) -> Joined:
        now = self._clock.wall()
        namesakes = [it for it in self._nodes.values() if it.joined.name == node.name and it.left_at is None]
        for it in namesakes:
            if it.joined.incarnation == node.incarnation:
                return Joined(id=it.id, generation=self._generation, number=it.joined.number)
        node = msgspec.structs.replace(node, number=self._number(node), lease_s=lease_s)
        self._fenced |= {it.id for it in namesakes}
        id_ = next(self._node_ids)
        until = now + timedelta(seconds=lease_s)
        self._nodes[id_] = Node(id=id_, joined=node, state=NodeState.ONLINE, joined_at=now, lease_until=until, beat=1)
        self._record("node.joined", {"node": id_, "name": node.name})
        if node.seats:
            self._nudge()
        return Joined(id=id_, generation=self._generation, number=node.number)

    def _number(self, node: NewNode) -> int:
        held = self._node_numbers.setdefault(node.group, {})
        now = self._clock.wall()
        living = {it.joined.name for it in self._nodes.values() if it.lease_until is not None and it.lease_until > now}
        number = number_of(node.name, node.number, held, living)
        self._node_numbers[node.group] = {name: it for name, it in held.items() if it != number} | {node.name: number}
        return number

    def _forget_nodes(self, before: datetime) -> int:
        busy = {it.node_id for it in self._queue.values()}
        gone = [it.id for it in self._nodes.values() if it.left_at is not None and it.left_at < before]
        gone = [it for it in gone if it not in busy]
        for id_ in gone:
            del self._nodes[id_]
        names = {it.joined.name for it in self._nodes.values()}
        self._node_numbers = {
            group: {name: number for name, number in held.items() if name in names}
            for group, held in self._node_numbers.items()
        }
        return len(gone)

    async def renew(self, node_id: int, *, lease_s: float, busy: float) -> int | None:
        node = self._nodes.get(node_id)
        if node is None or node.lease_until is None or node_id in self._fenced:
            return None
        until = self._clock.wall() + timedelta(seconds=lease_s)
        self._set_node(node_id, lease_until=until, beat=node.beat + 1, busy=round(busy, 2))
        return self._generation

    async def settle(self, node_id: int, ended: Sequence[tuple[int, int]]) -> None:
        self._unsettled.pop(node_id, None)
        if ended:
            named: list[Json] = [f"{item_id}.{attempt}" for item_id, attempt in ended]
            self._record(LOST, {"node": node_id, "begun_lost": len(ended), "begun": named})
        self._nudge()

    async def raised(self) -> tuple[datetime, str] | None:
        return self._raised

    async def raise_generation(self, why: str, *, above: int | None = None) -> int:
        if above is None or self._generation <= above:
            self._generation = max(self._generation, above or 0) + 1
            for name in ("_run_ids", "_row_ids", "_job_ids", "_node_ids"):
                setattr(self, name, count(next(getattr(self, name)) + ID_GAP))
            lock = self._lock
            self._lock = Lock(epoch=lock.epoch + 1, round=first_round(self._generation), changes=lock.changes + 1)
            self._raised = self._clock.wall(), why
            self._unsettled = {it.id: self._now_us() for it in self._nodes.values() if it.lease_until is not None}
            self._record(RAISED, {"generation": self._generation, "why": why})
        return self._generation

    async def advertise(self, node_id: int, handlers: Sequence[str], digests: Mapping[str, str]) -> None:
        if node_id in self._nodes:
            joined = self._nodes[node_id].joined
            joined = msgspec.structs.replace(joined, handlers=tuple(handlers), digests=dict(digests))
            self._set_node(node_id, joined=joined)
            self._nudge()

    async def retire(self, node_id: int) -> None:
        if node_id in self._nodes and self._nodes[node_id].state is NodeState.ONLINE:
            self._set_node(node_id, state=NodeState.DRAINING)
            self._record("node.draining", {"node": node_id})

    async def evict(self) -> int | None:
        return None

    async def nodes(self, *, gone: bool = False) -> Members:
        return self._members(gone=gone)

    async def dispatch(self, node_id: int, board: Board, *, batch_max: int) -> Round:
        try:
            return self._round(node_id, board, batch_max)
        except BaseException:
            board.forget()
            raise

    async def pulse(self, node_id: int) -> Pulse:
        return Pulse(
            now_us=self._now_us(),
            holder=self._lock.holder,
            next_us=self._lock.next_us,
            arrived_us=self._arrivals[0][0] if self._arrivals else None,
            granted=self._grants[node_id][-1].round if self._grants[node_id] else 0,
        )

    async def granted(self, node_id: int, after_round: int) -> tuple[Grant, ...]:
        return tuple(grant for grant in self._grants[node_id] if grant.round > after_round)

    def _members(self, *, gone: bool = False) -> Members:
        nodes = (it for it in self._nodes.values() if gone or it.lease_until is not None)
        return Members(now=self._clock.wall(), nodes=tuple(self._shown_node(it) for it in nodes))

    def _shown_node(self, node: Node) -> Node:
        listed = self._drained.get(node.joined.name)
        if node.state is NodeState.ONLINE and listed is not None and Role.EXECUTOR in listed.roles:
            return msgspec.structs.replace(node, state=NodeState.DRAINING)
        return node

    def _set_node(self, node_id: int, **fields: object) -> None:
        self._nodes[node_id] = msgspec.structs.replace(self._nodes[node_id], **fields)

    def _give_up(self, node_id: int, state: NodeState) -> None:
        node = self._nodes.get(node_id)
        if self._lock.holder == node_id:
            self._lock = self._lock._replace(holder=None)
        if node is not None and node.left_at is None:
            self._set_node(node_id, state=state, left_at=self._clock.wall(), lease_until=None)
            self._record(f"node.{state}", {"node": node_id})

    def _round(self, node_id: int, board: Board, batch_max: int) -> Round:
        lock, now_us = self._lock, self._now_us()
        took_over = (lock.holder, lock.epoch, lock.round) != (node_id, board.epoch, board.round)
        arrivals, self._arrivals = self._arrivals, []
        if took_over:
            board.forget()
        if took_over or lock.changes != board.changes:  # others remember starts without counting a change
            board.set_limits([*self._limits.values(), *self._starts.values()])
            board.changes = lock.changes
        board.lanes.update(self._lanes)
        if took_over:
            queued = self._queue.values()
            ready = [ready_of(it) for it in queued if it.state is ItemState.READY]
            taken = [it for it in queued if it.state is not ItemState.READY]
            board.rebuild(ready, [_seated(it) for it in taken])
        else:
            board.take([arrival for _, arrival in arrivals])
        board.begin(self._begun(board.unbegun))
        board.epoch = lock.epoch + took_over
        plan = board.plan(now_us, [] if self._has_unsettled(now_us) else self._targets(), batch_max)
        for limit in plan.limits:
            kept = self._limits if limit.name in self._limits else self._starts
            kept[limit.name] = limit
        number = lock.round + 1
        given = self._given(board, plan.given, number, now_us)
        grants = self._write_grants(given, number, now_us)
        is_new = bool(plan.given or arrivals or took_over)
        board.round = lock.round + is_new
        self._lock = lock._replace(
            holder=node_id, epoch=lock.epoch + took_over, round=lock.round + is_new, next_us=plan.next_us
        )
        for it in grants.keys() - {node_id}:
            self._wake(f"node:{it}")
        return Round(
            round=self._lock.round,
            now_us=now_us,
            took_over=took_over,
            given=len(given),
            more=len(plan.given) >= batch_max or len(given) < len(plan.given),
            arrivals=len(arrivals),
            next_us=plan.next_us,
            grants=grants,
        )

    def _has_unsettled(self, now_us: int) -> bool:
        nodes = [(self._nodes[it], at_us) for it, at_us in self._unsettled.items() if it in self._nodes]
        return any(it.lease_until is not None and now_us < at_us + settle_us(it.joined) for it, at_us in nodes)

    def _begun(self, item_ids: Collection[int]) -> list[tuple[int, int, int]]:
        found = (self._queue[item_id] for item_id in item_ids if item_id in self._queue)
        return [
            (it.item_id, it.attempt, micros(it.started_at))
            for it in found
            if it.state is ItemState.RUNNING and it.started_at is not None
        ]

    def _targets(self) -> list[Target]:
        now = self._clock.wall()
        return [
            _target(it)
            for it in self._members().nodes
            if it.state is NodeState.ONLINE
            and it.lease_until is not None
            and it.lease_until > now
            and not it.joined.is_void(micros(it.lease_until), micros(now))
            and it.id not in self._fenced
            and it.joined.takes_items
        ]

    def _given(self, board: Board, given: Sequence[Given], number: int, now_us: int) -> list[Given]:
        kept, gone = [], []
        for it in given:
            queued = self._queue.get(it.ready.item_id)
            if queued is None or queued.state is not ItemState.READY or queued.attempt != it.ready.attempt:
                gone.append(it.ready.item_id)
                continue
            state = {"state": ItemState.ASSIGNED, "node_id": it.node_id, "round": number, "attempt": queued.attempt + 1}
            self._change(queued.item_id, assigned_at=moment(now_us), **state)
            kept.append(it)
        if gone:
            board.refused(gone)
        return kept

    def _write_grants(self, given: Sequence[Given], number: int, now_us: int) -> dict[int, Grant]:
        items: dict[int, list[Granted]] = {}
        for position, (it, node_id) in enumerate(given):
            whose = (it.item_id, it.run_id, it.job_id, it.lane_id)
            items.setdefault(node_id, []).append(Granted(position, *whose, it.attempt + 1, it.failures, it.losses))
        grants = {node_id: Grant(round=number, at_us=now_us, items=tuple(its)) for node_id, its in items.items()}
        for node_id, grant in grants.items():
            self._grants[node_id].append(grant)
        return grants


def _seated(it: Queued) -> Seated:
    given_at = it.assigned_at if it.state is ItemState.ASSIGNED else None
    return Seated(it.item_id, it.lane_id, it.node_id, it.attempt, None if given_at is None else micros(given_at))


def _target(node: Node) -> Target:
    it = node.joined
    return Target(node.id, it.name, it.group, it.seats, frozenset(it.handlers), node.busy, it.version)
