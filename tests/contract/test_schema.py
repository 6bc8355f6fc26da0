"""The schema: migrations build what the code expects, once, whoever starts first; unsafe stores are refused (P13)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, UniqueConstraint, delete, update

from rota.clock import SystemClock
from rota.core.advance import Advance
from rota.core.define import Apply
from rota.core.fire import Fire
from rota.core.start import Start
from rota.errors import InvalidInput, StoreRefused
from rota.model.job import Task
from rota.model.tables import TABLES
from rota.storage.sql import connect as connect_module
from rota.storage.sql import schema
from rota.storage.sql.migrations import versions
from rota.storage.sql.store import VERSIONS, SqlStore
from rota.transactions.change import change
from rota.transactions.finish import finish
from rota.transactions.fire import fire
from rota.wiring import open_store
from tests.contract.conftest import SERVERS
from tests.factories import a_definition, a_due_job, a_node, an_end, given, queue, stored
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer
from tests.servers.sql import run as run_sql

Opener = Callable[[], SqlStore]


@pytest.fixture(params=["sqlite", *SERVERS])
async def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    """Opens an empty database of its own, again and again."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/rota.db"
    else:
        server = request.getfixturevalue("postgres_server" if request.param == "postgresql" else "mariadb_server")
        url = server.url(await server.create_database())
    opened: list[SqlStore] = []

    def open_() -> SqlStore:
        store = open_store(url, SystemClock(), actor="test")
        assert isinstance(store, SqlStore)
        opened.append(store)
        return store

    yield open_
    for store in opened:
        await store.close()


def test_the_list_of_migrations_is_the_list_of_their_files() -> None:
    files = sorted(Path(versions.__path__[0]).glob("[0-9]*.py"))
    assert [file.name.split("_")[0] for file in files] == list(VERSIONS)


async def test_migrations_build_the_tables_that_the_code_expects(fresh: Opener) -> None:
    store = fresh()
    await store.migrate()

    def differences(conn: Connection) -> list[object]:
        context = MigrationContext.configure(conn, opts={"version_table": "rota_schema", "compare_type": True})
        return compare_metadata(context, schema.metadata)

    assert await store._db.read(differences) == []


async def test_three_nodes_that_start_together_migrate_once(fresh: Opener) -> None:
    stores = [fresh() for _ in range(3)]
    await asyncio.gather(*(store.migrate() for store in stores))
    definition = a_definition()
    for store in stores:
        await store.check()
        await store.transact(change, [definition.full_name], Apply(definitions=(definition,)))
    assert (await stored(stores[0], definition)).id == 1


async def test_a_migration_that_was_cut_off_is_finished_by_the_next(fresh: Opener) -> None:
    store = fresh()
    await store.migrate()

    def cut_off(conn: Connection) -> None:
        schema.event.drop(conn)
        conn.exec_driver_sql("DELETE FROM rota_schema")
        conn.exec_driver_sql("DELETE FROM rota_meta")

    await store._db.write(cut_off)
    await store.migrate()
    await store.check()


async def test_items_that_were_ready_before_there_was_a_queue_are_dispatched(fresh: Opener) -> None:
    store = fresh()
    await store.migrate()
    ready = await a_due_job(store, tasks=(Task(name="main", runner="shell", hold_s=2.0, quota="night"),))
    waits = await a_due_job(store, overlap=queue())
    for job in (ready, waits):
        await store.transact(fire, [job.id], Fire())
    name = waits.definition.full_name
    await store.transact(change, [name], Start(name=name, key="waits"))
    before = await store.queued()

    def as_in_0001(conn: Connection) -> None:
        for table in (schema.queue, schema.lane, schema.arrival):
            conn.execute(delete(table))
        conn.exec_driver_sql("UPDATE rota_schema SET version_num = '0001'")

    await store._db.write(as_in_0001)
    store = fresh()
    await store.migrate()
    after = await store.queued()
    assert [(it.item_id, it.run_id, it.job_id, it.hold_s) for it in after] == [
        (it.item_id, it.run_id, it.job_id, it.hold_s) for it in before
    ]
    assert [it.hold_s for it in after] == [2.0, 0.0]
    granted = await given(store, await a_node(store))
    assert {it.item_id for it in granted} == {it.item_id for it in before}
    await finish(store, [an_end(it) for it in granted], rule=Advance())
    assert len(await given(store, await a_node(store))) == 1, "the run that waited has its turn"


async def test_migrating_twice_changes_nothing(fresh: Opener) -> None:
    store = fresh()
    await store.migrate()
    definition = a_definition()
    await store.transact(change, [definition.full_name], Apply(definitions=(definition,)))
    before = await stored(store, definition)
    await store.migrate()
    assert await stored(store, definition) == before


async def test_a_store_without_tables_says_what_to_do(fresh: Opener) -> None:
    with pytest.raises(StoreRefused, match="rota store migrate"):
        await fresh().check()


@pytest.mark.parametrize(("readable_from", "refused"), [("0001", False), ("9998", True)])
async def test_a_newer_schema_is_refused_unless_this_release_still_understands_it(
    fresh: Opener, readable_from: str, refused: bool
) -> None:
    store = fresh()
    await store.migrate()

    def from_the_future(conn: Connection) -> None:
        conn.exec_driver_sql("UPDATE rota_schema SET version_num = '9999'")
        conn.execute(update(schema.meta).where(schema.meta.c.name == "readable_from").values(value=readable_from))

    await store._db.write(from_the_future)
    for verb in (store.check, store.migrate):
        if refused:
            with pytest.raises(StoreRefused, match="newer release"):
                await verb()
        else:
            await verb()


async def test_sqlite_below_full_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/rota.db?synchronous=NORMAL"
    store = open_store(url, SystemClock(), actor="test")
    await store.migrate()
    with pytest.raises(StoreRefused, match="below FULL"):
        await store.check()
    await store.close()
    asked_for = open_store(url, SystemClock(), actor="test", may_forget=True)
    await asked_for.check()
    await asked_for.close()


WEAK_POSTGRESQL = [("fsync", "off"), ("synchronous_commit", "off"), ("full_page_writes", "off")]


async def test_a_postgresql_that_could_forget_is_refused() -> None:
    with PostgresServer() as server:
        url = server.url(await server.create_database())
        await open_and(url, SqlStore.migrate)
        await open_and(url, SqlStore.check)
        for setting, value in WEAK_POSTGRESQL:
            await run_sql(url, f"ALTER SYSTEM SET {setting} = '{value}'")
            await run_sql(url, "SELECT pg_reload_conf()")
            await refuses(url, setting)
            await run_sql(url, f"ALTER SYSTEM RESET {setting}")
            await run_sql(url, "SELECT pg_reload_conf()")


async def test_a_mariadb_that_could_forget_is_refused() -> None:
    with MariadbServer() as server:
        url = server.url(await server.create_database())
        await open_and(url, SqlStore.migrate)
        await open_and(url, SqlStore.check)
        await run_sql(url, "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        await refuses(url, "innodb_flush_log_at_trx_commit")


async def refuses(url: str, setting: str) -> None:
    """A reload takes a moment to reach new sessions."""

    async def refused() -> bool:
        try:
            await open_and(url, SqlStore.check)
        except StoreRefused as refusal:
            return setting in str(refusal)
        return False

    async with asyncio.timeout(10):
        while not await refused():
            await asyncio.sleep(0.05)


async def open_and(url: str, verb: Callable[[SqlStore], Awaitable[None]]) -> None:
    store = open_store(url, SystemClock(), actor="test")
    assert isinstance(store, SqlStore)
    try:
        await verb(store)
    finally:
        await store.close()


def test_sqlite_on_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_module, "_file_system", lambda path: "nfs4")
    with pytest.raises(StoreRefused, match="network file system"):
        open_store(f"sqlite:///{tmp_path}/rota.db", SystemClock(), actor="test")


def test_the_file_system_of_a_path_is_known(tmp_path: Path) -> None:
    assert connect_module._file_system(Path("/proc/self/status")) == "proc"
    assert connect_module._file_system(tmp_path) not in ("", "proc")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "oracle://somewhere/x",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite://host/path",
        "sqlite:///x.db?mode=ro",
        "sqlite:///x.db?synchronous=MAYBE",
        "postgresql://u@localhost/x?service=evil",
        "mysql://u@localhost/x?local_infile=1",
    ],
)
def test_a_bad_store_url_is_an_error_that_names_the_field(url: str) -> None:
    with pytest.raises(InvalidInput, match="store"):
        open_store(url, SystemClock(), actor="test")


def test_the_tables_of_transactions_are_those_of_the_schema() -> None:
    assert {it.name for it in TABLES} == {name.removeprefix("rota_") for name in schema.metadata.tables}
    for table in TABLES:
        kept = schema.metadata.tables[f"rota_{table.name}"]
        assert table.columns == tuple(kept.columns.keys()), table.name
        assert table.key == tuple(kept.primary_key.columns.keys()), table.name
        unique = {tuple(it.columns.keys()) for it in kept.constraints if isinstance(it, UniqueConstraint)}
        unique |= {tuple(it.columns.keys()) for it in kept.indexes if it.unique}
        assert set(table.unique.values()) == unique, table.name
        found = [table.key, *unique, *(tuple(it.columns.keys()) for it in kept.indexes)]
        for name, columns in table.indexes.items():
            assert any(it[: len(columns)] == columns for it in found), f"{table.name} cannot be found by {name}"
