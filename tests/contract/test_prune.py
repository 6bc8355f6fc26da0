"""What is forgotten, and what never is."""

from __future__ import annotations

import asyncio
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection, insert, make_url, select, update

from rota.clock import SystemClock
from rota.config import RetentionConfig
from rota.core.advance import Advance
from rota.core.start import Start
from rota.errors import InvalidInput
from rota.execution.log_directory import DirectoryLogs
from rota.loops.duty import Duty
from rota.loops.pruner import Pruner
from rota.model import tables
from rota.model.job import Overlap, OverlapPolicy
from rota.model.node import NodeState
from rota.model.plan import RunFilter
from rota.model.run import LogKey
from rota.model.standing import Retention
from rota.ports import Store
from rota.storage.memory import MemoryStore
from rota.storage.sql import schema
from rota.storage.sql.questions import unsettled_runs
from rota.storage.sql.store import SqlStore
from rota.transactions.assign import close_runs
from rota.transactions.change import change
from rota.transactions.finish import finish
from rota.transactions.members import leave
from rota.transactions.prune import prune
from tests.factories import MANUAL, a_definition, a_node, allow, an_end, assigned, given, put

DAY = 86400.0
KEEP = Retention(age_s=30 * DAY, runs_max=1000, numbers_s=60 * DAY, history_s=30 * DAY)
RULE = Advance()


async def age(store: Store, run_id: int, days: float) -> None:
    """Make a run older than it is."""
    us = round(days * DAY * 1_000_000)
    if isinstance(store, MemoryStore):
        run = store.tables.get(tables.RUN, run_id)
        assert run is not None
        ended = None if run.ended_at is None else run.ended_at - us
        store.tables.put(tables.RUN, run._replace(created_at=run.created_at - us, ended_at=ended))
        return
    r = schema.run.c
    values = {"created_at": r.created_at - us, "ended_at": r.ended_at - us}
    await write(store, lambda conn: conn.execute(update(schema.run).where(r.id == run_id).values(values)))


async def write(store: Store, work: Any) -> None:
    assert isinstance(store, SqlStore)
    await store._db.write(work)


async def ended_runs(store: Store, count: int, **fields: Any) -> list[int]:
    """Runs of one job that have ended."""
    definition = a_definition(rule=MANUAL, overlap=allow(), **fields)
    await put(store, [definition], None)
    name = definition.full_name
    node = await a_node(store)
    ids = []
    for n in range(count):
        (run,) = (await store.transact(change, [name], Start(name=name, key=str(n)))).runs
        ids.append(run.id)
        await finish(store, [an_end(it) for it in await given(store, node)], rule=RULE)
    return ids


async def test_ended_runs_are_forgotten_when_they_are_old(store: Store) -> None:
    ids = await ended_runs(store, 3)
    await age(store, ids[0], 31)
    await age(store, ids[1], 29)
    done = await store.transact(prune, KEEP, limit=100)
    assert done.run_ids == (ids[0],)
    assert done.rows >= 1
    assert await store.run(ids[0]) is None
    assert await store.items(ids[0]) == ()
    assert await store.attempts(ids[0]) == ()
    assert await store.events(run_id=ids[0]) == ()
    for kept in ids[1:]:
        assert len(await store.items(kept)) == len(await store.attempts(kept)) == 1
        assert len(await store.events(run_id=kept)) == 2
    assert (await store.transact(prune, KEEP, limit=100)).run_ids == ()


async def test_live_runs_are_never_forgotten(store: Store) -> None:
    definition = a_definition(rule=MANUAL)
    await put(store, [definition], None)
    name = definition.full_name
    (run,) = (await store.transact(change, [name], Start(name=name, key="a"))).runs
    loose = await assigned(store, 2)
    for it in (run, loose):
        await age(store, it.id, 1000)
    assert (await store.transact(prune, KEEP, limit=100)).run_ids == ()
    granted = await given(store, await a_node(store))
    assert len(granted) == 3
    assert (await store.transact(prune, KEEP, limit=100)).run_ids == ()


async def test_a_job_keeps_so_many_of_its_newest_runs(store: Store) -> None:
    ids = await ended_runs(store, 5)
    others = await ended_runs(store, 2)
    done = await store.transact(prune, msgspec.structs.replace(KEEP, runs_max=2), limit=100)
    assert sorted(done.run_ids) == ids[:3]
    assert {run.id for run in await store.runs(RunFilter())} == {*ids[3:], *others}


async def test_batches_are_small(store: Store) -> None:
    ids = await ended_runs(store, 5)
    for run_id in ids:
        await age(store, run_id, 31)
    forgotten = [(await store.transact(prune, KEEP, limit=2)).run_ids for _ in range(4)]
    assert [len(it) for it in forgotten] == [2, 2, 1, 0]
    assert sorted(run_id for batch in forgotten for run_id in batch) == ids


async def test_numbers_are_kept_for_longer(store: Store) -> None:
    """docs/dispatch.md: the external number is unique for at least so long."""
    run = await assigned(store, numbers=["mine"])
    await finish(store, [an_end(it) for it in await given(store, await a_node(store))])
    await close_runs(store, limit=10)
    await age(store, run.id, 59)
    assert (await store.transact(prune, KEEP, limit=10)).run_ids == ()
    with pytest.raises(InvalidInput):
        await assigned(store, numbers=["mine"])
    await age(store, run.id, 2)
    assert (await store.transact(prune, KEEP, limit=10)).run_ids == (run.id,)
    assert (await assigned(store, numbers=["mine"])).id != run.id


async def test_a_run_with_an_item_that_has_not_ended_is_not_closed_and_not_forgotten(store: Store) -> None:
    run = await assigned(store, 2)
    granted = await given(store, await a_node(store))
    await finish(store, [an_end(granted[0])])
    await close_runs(store, limit=10)
    await age(store, run.id, 1000)
    assert (await store.transact(prune, KEEP, limit=10)).run_ids == ()


async def test_two_that_prune_at_once_do_not_hinder_each_other(store: Store) -> None:
    ids = await ended_runs(store, 4)
    for run_id in ids:
        await age(store, run_id, 31)
    await asyncio.gather(*(store.transact(prune, KEEP, limit=100) for _ in range(3)))
    assert await store.runs(RunFilter()) == ()


@pytest.mark.parametrize("another", ["sqlite", "postgresql", "mariadb"], indirect=True)
async def test_old_history_grants_keys_and_nodes_are_forgotten(store: Store) -> None:
    definition = a_definition(rule=MANUAL, overlap=Overlap(policy=OverlapPolicy.QUEUE, key="shared"))
    await put(store, [definition], None)
    name = definition.full_name
    await store.transact(change, [name], Start(name=name, key="a"))
    node = await a_node(store)
    (granted,) = await given(store, node)
    assert await rows(store) == {"overlap": 1, "grant": 1, "node": 1}
    await store.transact(prune, KEEP, limit=10)
    assert await rows(store) == {"overlap": 1, "grant": 1, "node": 1}, "all of it is in use, or new"
    await finish(store, [an_end(granted)], rule=RULE)
    await store.transact(leave, node)
    assert (await store.nodes(gone=True)).nodes[0].state is NodeState.OFFLINE
    forget = Retention(age_s=0.0, runs_max=1000, numbers_s=0.0, history_s=0.0)
    await asyncio.sleep(0.01)
    await store.transact(prune, forget, limit=10)
    assert await rows(store) == {"overlap": 0, "grant": 0, "node": 0}
    assert await store.events() == ()
    await store.transact(change, [name], Start(name=name, key="b"))


async def test_the_output_of_forgotten_runs_is_removed_on_every_host(store: Store, tmp_path: Path) -> None:
    ids = await ended_runs(store, 3)
    await age(store, ids[0], 31)
    a, b = (DirectoryLogs(tmp_path / host) for host in "ab")
    keys = [LogKey(run_id, 1, 1) for run_id in (*ids, ids[-1] + 10**9)]
    for logs, key in product((a, b), keys):
        logs.append(key, 0, b"said")
    clock = SystemClock()
    idle = Duty(store, None, clock, "prune", "b", takes_part=False)
    await Pruner(store, clock, RetentionConfig(days=30, every_s=60), a).once()
    await Pruner(store, clock, RetentionConfig(days=30, every_s=60), b, duty=idle).once()
    for logs in (a, b):
        kept = [logs.read(key, 0, 9) for key in keys]
        assert kept == [b"", b"said", b"said", b"said"], "the store never gave the last number"


async def rows(store: Store) -> dict[str, int]:
    tables = {"overlap": schema.overlap, "grant": schema.grant, "node": schema.node}
    assert isinstance(store, SqlStore)

    def count(conn: Connection) -> dict[str, int]:
        return {name: len(conn.execute(select(table)).all()) for name, table in tables.items()}

    return await store._db.read(count)


BY_JOB = {
    "sqlite": "rota_run_live_of_job (job_id=? AND ended_at=?)",
    "postgresql": "Index Cond: ((job_id = (rota_job.id + 0)) AND (ended_at IS NULL))",
    "mysql": "'rota_run_live_of_job', '17', 'func,const'",
}
"""How a plan names a look into an index for each job, not once through all of it."""


@pytest.mark.parametrize("another", ["sqlite", "postgresql", "mariadb"], indirect=True)
async def test_runs_that_nobody_settled_are_not_looked_for_among_all_that_have_ended(store: Store) -> None:
    assert isinstance(store, SqlStore)
    await put(store, [a_definition(rule=MANUAL) for _ in range(4)], None)
    numbers = range(1, 20_001)
    slot = {"cause": "slot", "version": 1, "slots": 1, "state": "succeeded", "params": "{}"}
    ended = [
        {"id": n, "job_id": n % 4 + 1, "key": str(n), "overlap_key": f"job:{n % 4 + 1}", **slot}
        | {"due_at": n, "created_at": n, "ended_at": n}
        for n in numbers
    ]
    over = {"task": "main", "index": 0, "state": "succeeded", "not_before_at": 1, "start_by_at": 1, "ended_at": 1}
    await write(store, lambda conn: conn.execute(insert(schema.run), ended))
    await write(
        store, lambda conn: conn.execute(insert(schema.item), [{"id": n, "run_id": n, **over} for n in numbers])
    )
    dialect = make_url(f"{store._dialect.name}://").get_dialect()()
    query = str(unsettled_runs().compile(dialect=dialect, compile_kwargs={"literal_binds": True}))
    explain = "EXPLAIN QUERY PLAN" if store._dialect.name == "sqlite" else "EXPLAIN"

    def plan(conn: Connection) -> str:
        for table in () if store._dialect.name == "sqlite" else ("rota_run", "rota_job", "rota_item"):
            conn.exec_driver_sql(f"ANALYZE {'TABLE' if store._dialect.name == 'mysql' else ''} {table}").close()
        return str(conn.exec_driver_sql(f"{explain} {query}").all())

    assert BY_JOB[store._dialect.name] in await store._db.read(plan)
