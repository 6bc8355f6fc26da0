"""Nodes: how they join, what they advertise, how they are drained, and how they leave.

A node is believed alive while it has a lease row. A node whose name is taken by a newer incarnation is fenced: it
renews no more, and is rescued when its lease is over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import count

import msgspec

from rota.errors import Refused
from rota.model import tables
from rota.model.cluster import Drain, Role
from rota.model.node import Joined, NewNode, NodeState, settle_us
from rota.model.plan import Rule
from rota.model.records import drain_of, joined_of, to_us
from rota.model.states import ItemState
from rota.model.tables import Change, NodeRow
from rota.model.value import Json, decode, encode
from rota.transactions.decide import decide, lock_runs, understood, with_ends
from rota.transactions.plan import write_plan
from rota.transactions.queue import CANCELLED, cancel_held, ready_of
from rota.transactions.record import LOST, NAMED_MAX
from rota.transactions.tx import Tx

ONLINE, DRAINING, DISCONNECTED, OFFLINE = (str(state) for state in NodeState)
UNSETTLED = "unsettled/"
"""How the names of the records begin that say since when a node may execute what the store has lost."""

_FENCE = Change(tables.LEASE, ("node_id",), fixed=(("fenced", 1),))
_ADVERTISE = Change(tables.NODE, ("id",), ("joined",))
_RETIRE = Change(tables.NODE, ("id",), fixed=(("state", DRAINING),))
_GIVE_UP = Change(tables.NODE, ("id",), ("state", "left_at"))
_LEAVE_ROUNDS = Change(tables.DISPATCH, ("id", "holder"), fixed=(("holder", None),))
_DRAIN = Change(tables.DRAINED, ("name",), ("roles", "keep", "deadline_at"))
_NOBODY = (("node_id", None), ("round", None), ("assigned_at", None), ("started_at", None))
_GIVE_BACK = Change(tables.QUEUE, ("item_id",), fixed=(("state", str(ItemState.READY)), *_NOBODY))


def join(tx: Tx, node: NewNode, lease_s: float) -> Joined:
    """Give a node its id, its number within its group, and its first lease. A node of the same name that is still
    believed alive is fenced: it cannot renew any more, but its items stay its own until they are rescued. Refused: the
    number that it asks for is another's whose lease lasts."""
    node_id = tx.reserve_node()  # two of one name join one after the other
    now = tx.read_clock()
    namesakes = [row for row in tx.rows.find(tables.NODE, "name", [node.name]) if row.left_at is None]
    generation = int(tx.rows.read(tables.META, ["generation"])[0].value)
    for row in namesakes:
        known = joined_of(node.name, row.joined)
        if known.incarnation == node.incarnation:
            return Joined(id=row.id, generation=generation, number=known.number)
    node = msgspec.structs.replace(node, number=_number(tx, node), lease_s=lease_s)
    tx.rows.change(_FENCE, [(row.node_id,) for row in tx.lock(tables.LEASE, [row.id for row in namesakes])])
    tx.rows.insert(tables.NODE, [(node_id, node.name, ONLINE, encode(node), tx.now_us, None)])
    tx.rows.insert(tables.LEASE, [(node_id, tx.now_us + round(lease_s * 1_000_000), 1, 0, 0)])
    tx.record("node.joined", {"node": node_id, "name": node.name, "at": now.isoformat()})
    tx.is_news = node.seats > 0
    return Joined(id=node_id, generation=generation, number=node.number)


def _number(tx: Tx, node: NewNode) -> int:
    """Give a node its number; nodes join one after the other."""
    rows = tx.rows.find(tables.NUMBER, "group", [node.group])
    held = {row.name: row.number for row in rows}
    number = _number_of(node.name, node.number, held, tx.ask.living_names(tx.now_us))
    if held.get(node.name) != number:
        former = [(row.group_name, row.number) for row in rows if row.name == node.name or row.number == number]
        tx.rows.remove(tables.NUMBER, former)
        tx.rows.insert(tables.NUMBER, [(node.group, number, node.name)])
    return number


def _number_of(name: str, wanted: int, held: Mapping[str, int], living: Collection[str]) -> int:
    """The number of a node that joins within its group: the lowest that is free, kept by the node's name; or the one it
    asks for (`wanted`, 0 for any), where these names have these numbers. One that is asked for is taken from a node
    that is gone, never from one that lives."""
    if not wanted:
        return held.get(name) or next(number for number in count(1) if number not in held.values())
    holder = next((it for it, number in held.items() if number == wanted and it != name), None)
    if holder in living:
        raise Refused(f"number {wanted} of this group is the number of node {holder}, which lives")
    return wanted


def advertise(tx: Tx, node_id: int, handlers: Sequence[str], digests: Mapping[str, str]) -> None:
    """Change what a node says it can run."""
    for row in tx.lock(tables.NODE, [node_id]):
        known = decode(row.joined, NewNode)
        now = msgspec.structs.replace(known, handlers=tuple(handlers), digests=dict(digests))
        tx.rows.change(_ADVERTISE, [(node_id, encode(now))])
        tx.is_news = True


def retire(tx: Tx, node_id: int) -> None:
    """Give this incarnation no more items: it finishes what it has, and leaves. When this is committed, no round is
    under way that would."""
    tx.interrupt_rounds()
    tx.read_clock()
    if any(row.state == ONLINE for row in tx.lock(tables.NODE, [node_id])):
        tx.rows.change(_RETIRE, [(node_id,)])
        tx.record("node.draining", {"node": node_id})


def settle(tx: Tx, node_id: int, ended: Sequence[tuple[int, int]]) -> None:
    """Note that a node has nothing in hand that the store does not know of, after the generation was raised; `ended`
    are the attempts (item, attempt) that it had to end for that. Until all nodes have said so, for as long as a lease
    at most, rounds give nothing to anybody: what executes unknown to the store counts against the caps."""
    tx.read_clock()
    tx.rows.remove(tables.META, [f"{UNSETTLED}{node_id}"])
    if ended:
        named: list[Json] = [f"{item_id}.{attempt}" for item_id, attempt in ended[:NAMED_MAX]]
        tx.record(LOST, {"node": node_id, "begun_lost": len(ended), "begun": named})
    tx.is_news = True


def has_unsettled(tx: Tx) -> bool:
    """Whether a node may execute something that the store gave it and has lost. One that has not settled has not moved
    its switches on since the generation was raised, so after a lease they have acted."""
    listed = [row for row in tx.rows.all(tables.META) if row.name.startswith(UNSETTLED)]
    since = {int(row.name.removeprefix(UNSETTLED)): int(row.value) for row in listed}
    if not since:
        return False
    living = {row.node_id for row in tx.rows.read(tables.LEASE, sorted(since))}
    nodes = tx.rows.read(tables.NODE, sorted(living))
    now_us = tx.rows.now_us()
    return any(now_us < since[row.id] + settle_us(joined_of(row.name, row.joined)) for row in nodes)


def leave(tx: Tx, node_id: int, rule: Rule | None = None) -> None:
    """A clean stop: the node is offline, and what it still has goes back. What was asked to stop meanwhile is not given
    again: nobody runs it any more, so it is over, and its run with it."""
    tx.interrupt_rounds()
    mine = tx.ask.queue_of(node_id)
    asked = [row for row in mine if row.cancel_at is not None and row.job_id]
    assert rule is not None or not asked, "the runs of jobs need a rule that says what follows"
    ground = None
    if rule is not None and asked:
        ground = lock_runs(tx, {row.job_id for row in asked}, sorted({row.run_id for row in asked}), rule)
    rows = [row for row in tx.lock_queue(row.item_id for row in mine) if row.node_id == node_id]
    tx.lock(tables.LEASE, [node_id])  # no renewal can come between
    node = next(iter(tx.lock(tables.NODE, [node_id])), None)
    tx.read_clock()
    over = [row for row in rows if row.cancel_at is not None]
    decision = None
    if ground is not None and rule is not None:
        # What is asked to stop only now may be of another run: that is settled by whoever has the duty to prune.
        runs = understood(ground, (row.run_id for row in over))
        ended = {row.item_id: CANCELLED for row in over}
        decision = decide(tx, ground, rule, items=with_ends(tx, runs, ended), runs=runs)
    tx.rows.disjoint(tables.QUEUE, tables.ITEM)
    cancel_held(tx, over, "" if node is None else node.name)
    back = [row for row in rows if row.cancel_at is None]
    tx.rows.change(_GIVE_BACK, [(row.item_id,) for row in back])
    tx.ready += [ready_of(row) for row in back]
    if decision is not None:
        write_plan(tx, decision)
    give_up(tx, node_id, node, OFFLINE)


def give_up(tx: Tx, node_id: int, node: NodeRow | None, state: str) -> None:
    """The node is gone: it has no lease, its name is free, and somebody else makes the next round. Once only; the
    caller has the dispatch lock and the node's."""
    tx.rows.change(_LEAVE_ROUNDS, [(1, node_id)])
    tx.rows.remove(tables.LEASE, [node_id])
    if node is not None and node.left_at is None:
        tx.rows.change(_GIVE_UP, [(node_id, state, tx.now_us)])
        tx.record(f"node.{state}", {"node": node_id})


def drain(tx: Tx, drains: Sequence[Drain]) -> None:
    """Put nodes, by name, on the offline list, in these roles too if they are there already. It lasts."""
    known = _listed(tx, [it.name for it in drains])
    for it in drains:
        was = known.get(it.name)
        roles = _sorted({*it.roles, *(() if was is None else was.roles)})
        _list(tx, msgspec.structs.replace(it, roles=roles), was)
    if new := [it.name for it in drains if it.name not in known]:
        tx.record("node.drained", {"names": [*sorted(new)]})


def undrain(tx: Tx, names: Sequence[str], roles: Sequence[Role]) -> None:
    """Take nodes off the offline list, in these roles."""
    known = _listed(tx, names)
    for was in known.values():
        _list(tx, msgspec.structs.replace(was, roles=_sorted(set(was.roles) - set(roles))), was)
    if known:
        tx.record("node.undrained", {"names": [*sorted(known)]})
        tx.is_news = True


def _listed(tx: Tx, names: Sequence[str]) -> dict[str, Drain]:
    """What the list says of these now; no round is under way that would go by it."""
    tx.interrupt_rounds()
    tx.read_clock()
    return {row.name: drain_of(row) for row in tx.rows.read(tables.DRAINED, sorted(set(names)))}


def _list(tx: Tx, it: Drain, was: Drain | None) -> None:
    values = (",".join(it.roles), it.keep, to_us(it.deadline_at))
    if not it.roles:
        tx.rows.remove(tables.DRAINED, [it.name])
    elif was is None:
        tx.rows.insert(tables.DRAINED, [(it.name, tx.now_us, *values)])
    else:
        tx.rows.change(_DRAIN, [(it.name, *values)])


def _sorted(roles: set[Role]) -> tuple[Role, ...]:
    return tuple(role for role in Role if role in roles)
