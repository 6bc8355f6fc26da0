"""For each rank of locks, two transactions that need it: what must hold afterwards whoever comes first, and a mutant
that leaves the lock out.

The ranks ALARM and COUNTER are not here: what they guard is guarded by keys as well (of alarms and deliveries, of the
rows that get the numbers), so that a missing lock there costs a repeat, and nothing that could be seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import count
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

from rota.core.advance import Advance
from rota.core.dispatch.board import Rounds
from rota.core.start import Start
from rota.model.job import Definition, Overlap
from rota.model.plan import RunFilter
from rota.model.states import ItemState, RunState
from rota.model.work import GLOBAL, Limit
from rota.ports import Store
from rota.transactions import decide as decide_module
from rota.transactions import members as members_module
from rota.transactions import round as round_module
from rota.transactions.assign import assign
from rota.transactions.cancel import cancel
from rota.transactions.change import change
from rota.transactions.finish import finish
from rota.transactions.limits import set_limits
from rota.transactions.locks import RANKS, Rank
from rota.transactions.members import join
from rota.transactions.rescue import rescue
from rota.transactions.round import dispatch
from rota.transactions.tx import Tx
from tests.factories import MANUAL, a_definition, a_new_node, a_node, an_assignment, an_end, given, put

Scene = Callable[[Store, Store], Awaitable[None]]
RULE = Advance()


_racing = [False]


async def race(*parts: Awaitable[Any]) -> list[Any]:
    """Do things at the same time. What comes before in a scene is not part of the race, and does not hesitate."""
    _racing[0] = True
    try:
        return await asyncio.gather(*parts)
    finally:
        _racing[0] = False


async def start(store: Store, definition: Definition, key: str) -> None:
    name = definition.full_name
    await store.transact(change, [name], Start(name=name, key=key), known=[(name, key)])


async def two_starts_of_a_job(one: Store, other: Store) -> None:
    definition = a_definition(rule=MANUAL)
    await put(one, [definition], None)
    await race(start(one, definition, "a"), start(other, definition, "b"))
    assert len(await one.runs(RunFilter(states=(RunState.RUNNING,)))) <= 1, "two runs of a job run that forbids it"


async def two_jobs_of_one_key(one: Store, other: Store) -> None:
    definitions = [a_definition(rule=MANUAL, overlap=Overlap(key="shared")) for _ in range(3)]
    await put(one, definitions, None)
    await start(one, definitions[2], "before")  # it makes the row of the key
    (run,) = await one.runs(RunFilter(states=(RunState.RUNNING,)))
    await one.transact(cancel, [run.id], rule=RULE)
    await race(start(one, definitions[0], "a"), start(other, definitions[1], "b"))
    assert len(await one.runs(RunFilter(states=(RunState.RUNNING,)))) <= 1, "two runs of a key run that forbids it"


async def two_rounds(one: Store, other: Store) -> None:
    await one.transact(set_limits, [Limit(name=GLOBAL, cap=1), Limit(name="quota:acme/default")])
    nodes = [await a_node(one, name="n1"), await a_node(one, name="n2", group="gpu")]
    due = await one.now() + timedelta(seconds=0.3)
    await assign(one, an_assignment(2, start_at=due))
    await given(one, nodes[0])  # what has arrived is taken: whoever takes it would keep the other waiting
    while await one.now() < due:
        await asyncio.sleep(0.02)

    async def urgent_round() -> None:
        """It sees what the other does not see, and so gives another item, to another node."""
        await assign(other, an_assignment(1, group="gpu", start_at=due - timedelta(hours=1)))
        await dispatch(other, nodes[1], Rounds(), batch_max=10)

    await race(dispatch(one, nodes[0], Rounds(), batch_max=10), urgent_round())
    seated = [it for it in await one.queued() if it.node_id is not None]
    assert len(seated) <= 1, "more items were given than the cap allows"


async def two_cancels_of_a_run(one: Store, other: Store) -> None:
    await one.transact(set_limits, [Limit(name="quota:acme/default")])
    node = await a_node(one)
    run = await assign(one, an_assignment(1))
    await given(one, node)
    await race(one.transact(cancel, [run.id], rule=RULE), other.transact(cancel, [run.id], rule=RULE))
    asked = [it for it in await one.events(run_id=run.id) if it.kind == "run.cancel_asked"]
    assert len(asked) == 1, "the history tells twice of what happened once"


async def a_retry_and_a_cancel(one: Store, other: Store) -> None:
    await one.transact(set_limits, [Limit(name="quota:acme/default")])
    node = await a_node(one)
    run = await assign(one, an_assignment(1))
    (item,) = await given(one, node)
    again = an_end(item, "failed", "ready", node_id=node)
    await race(finish(one, [again]), other.transact(cancel, [run.id], rule=RULE))
    left = [it for it in await one.queued() if it.state is ItemState.READY]
    assert left == [], "an item that was cancelled is tried again"


async def a_rescue_and_a_renewal(one: Store, other: Store) -> None:
    node = await a_node(one, lease_s=-60.0)
    rescued, renewed = await race(
        one.transact(rescue, node, 1, [], rule=RULE, margin_s=1.0), other.renew(node, lease_s=60.0, busy=0.0)
    )
    assert not (rescued and renewed is not None), "a node was given up whose lease was renewed"


async def two_joins_of_one_name(one: Store, other: Store) -> None:
    joined = await race(
        one.transact(join, a_new_node("n1"), lease_s=60.0), other.transact(join, a_new_node("n1"), lease_s=60.0)
    )
    renewed = [await one.renew(it.id, lease_s=60.0, busy=0.0) for it in joined]
    assert renewed.count(None) == 1, "two nodes of one name are believed alive"


class Locked(NamedTuple):
    rank: Rank
    scene: Scene

    def __str__(self) -> str:
        return self.rank.name.lower()


SCENES = (
    Locked(Rank.JOINING, two_joins_of_one_name),
    Locked(Rank.DISPATCH, two_rounds),
    Locked(Rank.JOB, two_starts_of_a_job),
    Locked(Rank.OVERLAP, two_jobs_of_one_key),
    Locked(Rank.RUN, two_cancels_of_a_run),
    Locked(Rank.QUEUE, a_retry_and_a_cancel),
    Locked(Rank.NODE, a_rescue_and_a_renewal),
)

Hesitate = Callable[[Tx], None]


@contextmanager
def without_the_lock(rank: Rank, hesitate: Hesitate = lambda tx: None) -> Iterator[None]:
    """Rows of a rank are read instead of locked. A transaction hesitates when it has read what the lock would have kept
    as it is: then others may go on."""
    real, ids = Tx.lock, count(1000)

    def pause(tx: Tx) -> None:
        if _racing[0]:
            hesitate(tx)

    def lock(self: Tx, table: Any, keys: Any, *, skip: bool = False) -> Any:
        if RANKS.get(table) is not rank:
            return real(self, table, keys, skip=skip)
        rows = self.rows.read(table, sorted(set(keys)))
        if rank not in later:
            pause(self)
        return rows

    def numbered(tx: Tx, node: Any, _real: Any = members_module._number) -> int:
        """Two that look for namesakes and numbers at the same time get the same number, and its key lets one in."""
        pause(tx)
        return _real(tx, node)

    later = {
        Rank.JOINING: [
            patch.object(Tx, "reserve_node", lambda self: next(ids)),
            patch.object(members_module, "_number", numbered),
        ],
        Rank.DISPATCH: [_then(pause, round_module, "_rebuild")],
        Rank.JOB: [_then(pause, decide_module, "_crowds")],
        Rank.OVERLAP: [_then(pause, decide_module, "_crowds")],
    }
    with ExitStack() as stack:
        for it in (patch.object(Tx, "lock", lock), *later.get(rank, [])):
            stack.enter_context(it)
        yield


def _then(pause: Hesitate, module: ModuleType, name: str) -> Any:
    """Pause when a function of a module is done."""
    done = getattr(module, name)

    def slow(tx: Tx, *facts: Any) -> Any:
        found = done(tx, *facts)
        pause(tx)
        return found

    return patch.object(module, name, slow)
