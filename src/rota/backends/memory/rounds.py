"""Nodes, and the rounds that give them items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from rota.backends.memory.ground import ready_of
from rota.backends.memory.reading import Reading
from rota.backends.numbers import number_of
from rota.model.cluster import Role
from rota.model.dispatch import ArrivalKind, Board, Given, Grant, Granted, Pulse, Round, Seated, Target
from rota.model.moment import moment
from rota.model.node import Joined, Members, NewNode, Node, NodeState
from rota.model.states import ItemState


class Rounds(Reading):
    """Who is there, and who gets what."""

    async def join(self, node: NewNode, *, lease_s: float) -> Joined:
        now = self._clock.wall()
        namesakes = [it for it in self._nodes.values() if it.joined.name == node.name and it.left_at is None]
        for it in namesakes:
            if it.joined.incarnation == node.incarnation:
                return Joined(id=it.id, generation=1, number=it.joined.number)
        node = msgspec.structs.replace(node, number=self._number(node))
        self._fenced |= {it.id for it in namesakes}
        id_ = next(self._node_ids)
        until = now + timedelta(seconds=lease_s)
        self._nodes[id_] = Node(id=id_, joined=node, state=NodeState.ONLINE, joined_at=now, lease_until=until, beat=1)
        self._record("node.joined", {"node": id_, "name": node.name})
        if node.seats:
            self._nudge()
        return Joined(id=id_, generation=1, number=node.number)

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

    async def renew(self, node_id: int, *, lease_s: float, busy: float) -> bool:
        node = self._nodes.get(node_id)
        if node is None or node.lease_until is None or node_id in self._fenced:
            return False
        until = self._clock.wall() + timedelta(seconds=lease_s)
        self._set_node(node_id, lease_until=until, beat=node.beat + 1, busy=round(busy, 2))
        return True

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

    async def leave(self, node_id: int) -> None:
        back = [it.item_id for it in self._queue.values() if it.node_id == node_id]
        fresh = {"state": ItemState.READY, "node_id": None, "round": None, "assigned_at": None, "started_at": None}
        ready = [ready_of(self._change(item_id, **fresh)) for item_id in sorted(back)]
        self._tell(ArrivalKind.READY, ready=ready)
        self._give_up(node_id, NodeState.OFFLINE)

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
        took_over = lock.holder != node_id or board.epoch != lock.epoch
        arrivals, self._arrivals = self._arrivals, []
        if lock.changes != board.changes:
            board.set_limits([*self._limits.values(), *self._starts.values()])
            board.changes = lock.changes
        board.lanes.update(self._lanes)
        if took_over:
            queued = self._queue.values()
            ready = [ready_of(it) for it in queued if it.state is ItemState.READY]
            taken = [it for it in queued if it.state is not ItemState.READY]
            board.rebuild(ready, [Seated(it.item_id, it.lane_id, it.node_id, it.attempt) for it in taken])
        else:
            board.take([arrival for _, arrival in arrivals])
        board.epoch = lock.epoch + took_over
        plan = board.plan(now_us, self._targets(), batch_max)
        for limit in plan.limits:
            kept = self._limits if limit.name in self._limits else self._starts
            kept[limit.name] = limit
        number = lock.round + 1
        given = self._given(board, plan.given, number, now_us)
        grants = self._write_grants(given, number, now_us)
        is_new = bool(plan.given or arrivals or took_over)
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

    def _targets(self) -> list[Target]:
        now = self._clock.wall()
        return [
            Target(it.id, it.joined.name, it.joined.group, it.joined.seats, frozenset(it.joined.handlers), it.busy)
            for it in self._members().nodes
            if it.state is NodeState.ONLINE
            and it.lease_until is not None
            and it.lease_until > now
            and it.id not in self._fenced
            and it.joined.seats > 0
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
