"""What a benchmark compares with: the same rows in tables that are built like the product's."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from rota.bench.plain import COPIES, Sample, connect, raw_rate
from rota.wiring import open_store, system_clock

NOW = 1_760_000_000_000_000
ITEM = {
    "id": 1,
    "run_id": 7,
    "task": "main",
    "index": 3,
    "state": "ready",
    "not_before_at": NOW,
    "start_by_at": NOW,
    "tenant": "bench-12",
    "number": "0123abcd-000000123",
    "info": '"x"',
}
QUEUE = {
    "item_id": 1,
    "run_id": 7,
    "job_id": 0,
    "lane_id": 1,
    "state": "ready",
    "start_by_at": NOW,
    "not_before_at": NOW,
    "attempt": 0,
    "failures": 0,
    "losses": 0,
    "hold_us": 0,
}
ATTEMPT = {
    "item_id": 1,
    "attempt": 1,
    "node": "bench-1",
    "round": 7,
    "assigned_at": NOW,
    "started_at": NOW,
    "ended_at": NOW,
    "outcome": "succeeded",
    "log_bytes": 0,
}
SAMPLE = Sample(item=ITEM, queue=QUEUE, ended={**ITEM, "state": "succeeded"}, attempt=ATTEMPT)


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of an empty store of each kind."""
    async with AsyncExitStack() as stack:
        if request.param == "sqlite":
            found = f"sqlite:///{tmp_path}/rota.db"
        else:
            server = request.getfixturevalue(f"{request.param}_server")
            found = await stack.enter_async_context(server.fresh_database())
        store = open_store(found, system_clock(), actor="test")
        await store.migrate()
        await store.close()
        yield found


async def test_every_row_is_written_and_the_tables_are_gone_after_it(url: str) -> None:
    conn = await connect(url)
    told: list[int] = []
    assert await raw_rate(url, system_clock(), SAMPLE, 1234, lambda what, done, of: told.append(done)) > 0
    assert max(told) == 1234
    for copy in COPIES.values():
        with pytest.raises(Exception, match=copy):
            await conn.rows(f"SELECT count(*) FROM {copy}")
    await conn.close()


async def test_a_copied_table_takes_the_same_rows_and_refuses_the_same_twins(url: str) -> None:
    conn = await connect(url)
    await conn.copy_table("rota_item", "bench_rota_item")
    await conn.insert("bench_rota_item", list(ITEM), [tuple(ITEM.values())])
    assert [_known(row) for row in await conn.records("SELECT * FROM bench_rota_item")] == [ITEM]
    twins: list[dict[str, Any]] = [ITEM, {**ITEM, "id": 2, "number": "x"}, {**ITEM, "id": 2, "run_id": 8}]
    for twin in twins:  # the same id; the same place in a run; the same number of a tenant
        with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
            await conn.insert("bench_rota_item", list(ITEM), [tuple(twin.values())])
    assert await conn.rows("SELECT count(*) FROM rota_item") == [(0,)]
    await conn.close()


async def test_postgresql_keeps_the_storage_options_of_a_table_in_its_copy(postgres_url: str) -> None:
    conn = await connect(postgres_url)
    await conn.run("CREATE TABLE a (id bigint PRIMARY KEY) WITH (fillfactor = 42)")
    await conn.copy_table("a", "b")
    assert await conn.rows("SELECT reloptions FROM pg_class WHERE relname = 'b'") == [(["fillfactor=42"],)]
    await conn.close()


def _known(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}
