"""How many statements each transaction costs, on each database: a round trip costs more than a small batch.

Counted are statements, without BEGIN and COMMIT, and without those that reserve blocks of ids, which come now and then.
The allowance is zero: a statement more is a decision, and stands in this table.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from sqlalchemy import event

from rota.core.advance import Advance
from rota.core.dispatch.board import Rounds
from rota.core.fire import Fire
from rota.core.start import Start
from rota.model.cluster import Drain
from rota.model.work import GLOBAL, Limit
from rota.ports import Store
from rota.storage.sql.database import ServerDatabase
from rota.storage.sql.sqlite import FileDatabase
from rota.storage.sql.store import SqlStore
from rota.transactions.cancel import cancel
from rota.transactions.change import change
from rota.transactions.finish import finish
from rota.transactions.fire import fire
from rota.transactions.limits import set_limits
from rota.transactions.members import drain, leave
from rota.transactions.round import dispatch
from tests.contract.conftest import Open
from tests.factories import a_definition, a_node, a_start, allow, an_end, assigned, due_jobs, given, put, queue

Deed = Callable[[], Awaitable[object]]
DATABASES = ("sqlite", "postgresql", "mariadb")
pytestmark = pytest.mark.parametrize("another", DATABASES, indirect=True)

COSTS: dict[str, tuple[int, int, int]] = {
    # SQLite, PostgreSQL, MariaDB
    "fire 1 jobs": (9, 4, 9),
    "fire 40 jobs": (19, 4, 9),
    "finish 1 runs of jobs": (12, 7, 12),
    "finish 20 runs of jobs": (16, 7, 12),
    "start by hand, first": (11, 7, 11),
    "start by hand, second": (9, 7, 9),
    "finish a run that another waits for": (18, 10, 17),
    "assign": (6, 2, 6),
    "round, taking over": (13, 9, 12),
    "round": (7, 2, 7),
    "round without news": (3, 1, 3),
    "finish items of assignments": (5, 1, 5),
    "finish, retry and start": (9, 2, 7),
    "cancel runs of assignments": (9, 6, 8),
    "join": (9, 6, 10),
    "drain": (4, 4, 5),
    "leave": (18, 7, 15),
}


async def test_what_each_transaction_costs(another: Open) -> None:
    store = await another()
    assert isinstance(store, SqlStore)
    found = {name: len(statements) async for name, statements in deeds(store)}
    place = DATABASES.index({"mysql": "mariadb"}.get(store.database.dialect.name, store.database.dialect.name))
    assert found == {name: costs[place] for name, costs in COSTS.items()}


async def deeds(store: Store) -> AsyncIterator[tuple[str, list[str]]]:
    """Each transaction, and the statements that it sent."""
    node, rule, board = await warm(store), Advance(), Rounds()
    for count in (1, 40):
        ids = [job.id for job in await due_jobs(store, count, overlap=allow())]
        yield f"fire {count} jobs", await cost(store, partial(store.transact, fire, ids, Fire()))
    items = await given(store, node)
    for first, last in ((0, 1), (1, 21)):
        ends = [an_end(it) for it in items[first:last]]
        yield f"finish {len(ends)} runs of jobs", await cost(store, partial(finish, store, ends, rule=rule))
    await finish(store, [an_end(it) for it in items[21:]], rule=rule)
    definition = a_definition(overlap=queue())
    await put(store, [definition], None)
    name = definition.full_name
    for key in ("first", "second"):
        start = Start(name=name, key=key)
        by_hand = partial(store.transact, change, [name], start, known=[(name, key)])
        yield f"start by hand, {key}", await cost(store, by_hand)
    (item,) = await given(store, node)
    ends = [an_end(item)]
    yield "finish a run that another waits for", await cost(store, partial(finish, store, ends, rule=rule))
    yield "assign", await cost(store, lambda: assigned(store, 10))
    yield "round, taking over", await cost(store, lambda: dispatch(store, node, board, batch_max=100))
    await assigned(store, 10)
    yield "round", await cost(store, lambda: dispatch(store, node, board, batch_max=100))
    yield "round without news", await cost(store, lambda: dispatch(store, node, board, batch_max=100))
    granted = [it for grant in await store.granted(node, 0) for it in grant.items if not it.job_id][-20:]
    ends = [an_end(it) for it in granted[:5]]
    yield "finish items of assignments", await cost(store, lambda: finish(store, ends))
    ends = [*(an_end(it, "failed", "ready") for it in granted[5:10]), *(an_end(it) for it in granted[10:12])]
    starts = [a_start(it) for it in granted[12:15]]
    yield "finish, retry and start", await cost(store, lambda: finish(store, ends, starts))
    run_ids = sorted({it.run_id for it in granted[15:]})
    yield "cancel runs of assignments", await cost(store, lambda: store.transact(cancel, run_ids, rule=rule))
    yield "join", await cost(store, lambda: a_node(store, name="another"))
    yield "drain", await cost(store, lambda: store.transact(drain, [Drain(name="another")]))
    yield "leave", await cost(store, lambda: store.transact(leave, node, rule=rule))


async def warm(store: Store) -> int:
    """Let this process have ids and lanes at hand, as one that has done all this before; returns a node."""
    await store.transact(set_limits, [Limit(name=GLOBAL, cap=1000), Limit(name="quota:acme/default")])
    node = await a_node(store, seats=500)
    await store.transact(fire, [job.id for job in await due_jobs(store, 2, overlap=allow())], Fire())
    await assigned(store, 2)
    await finish(store, [an_end(it) for it in await given(store, node)], rule=Advance())
    return node


async def cost(store: Store, deed: Deed) -> list[str]:
    with counted(store) as statements:
        await deed()
    return statements


@contextmanager
def counted(store: Store) -> Iterator[list[str]]:
    """The statements that a store sends."""
    assert isinstance(store, SqlStore)
    database = store.database
    if isinstance(database, FileDatabase):
        engines = [database._engine]
    else:
        assert isinstance(database, ServerDatabase)
        engines = [it.sync_engine for it in database.engines]
    statements: list[str] = []

    def note(*call: object) -> None:
        text = " ".join(str(call[2]).split())
        if text not in ("BEGIN IMMEDIATE", "COMMIT") and "rota_counter" not in text:
            statements.append(text)

    for engine in engines:
        event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        for engine in engines:
            event.remove(engine, "before_cursor_execute", note)
