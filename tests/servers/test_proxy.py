"""The fault proxy between real drivers and servers: each fault does what it says, and its counter tells the truth."""

import asyncio
import random
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncmy
import asyncpg
import pytest
import sqlalchemy.exc
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.servers.ports import LOOPBACK, free_port
from tests.servers.proxy import FaultProxy
from tests.servers.sql import connect_mysql, run
from tests.servers.wire import MysqlWire, PostgresWire, Wire, wire_of_client, wire_of_server

LOST = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncmy.errors.MySQLError)
DRIVERS = {"postgresql": "postgresql+asyncpg", "mysql": "mysql+asyncmy"}


@pytest.fixture(params=["postgres", "mariadb"])
async def direct(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The URL of a database with an empty table `facts`, past the proxy."""
    server = request.getfixturevalue(f"{request.param}_server")
    async with server.fresh_database() as url:
        await run(url, "CREATE TABLE facts (id int PRIMARY KEY)")
        yield url


@pytest.fixture
async def proxy(direct: str) -> AsyncIterator[FaultProxy]:
    parts = urlsplit(direct)
    assert parts.hostname is not None
    assert parts.port is not None
    async with FaultProxy(parts.hostname, parts.port) as proxy:
        yield proxy


@pytest.fixture
def url(direct: str, proxy: FaultProxy) -> str:
    """The same database, through the proxy."""
    return on_port(direct, proxy.port)


async def test_without_a_fault_all_passes(proxy: FaultProxy, url: str) -> None:
    await run(url, "INSERT INTO facts VALUES (1)")
    assert await run(url, "SELECT id FROM facts") == [(1,)]
    assert proxy.accepted == 2
    assert proxy.held == proxy.delayed == proxy.aborted == proxy.swallowed == 0


async def test_large_rows_pass_both_ways(proxy: FaultProxy, direct: str, url: str) -> None:
    await run(
        direct, "CREATE TABLE large (body text)" if "postgresql" in direct else "CREATE TABLE large (body longtext)"
    )
    await run(url, f"INSERT INTO large VALUES ('{'COMMIT; ' * 100_000}')")
    assert len((await run(url, "SELECT body FROM large"))[0][0]) == 800_000


async def test_a_refused_client_is_told_at_once_and_served_after_healing(proxy: FaultProxy, url: str) -> None:
    await proxy.refuse()
    with pytest.raises(LOST, match=r"refused|Can't connect|Connect call failed"):
        await run(url, "SELECT 1")
    await proxy.pass_through()
    assert await run(url, "SELECT 1") == [(1,)]


async def test_refusing_leaves_open_connections_alone(proxy: FaultProxy, url: str) -> None:
    async with transaction(url) as execute:
        await proxy.refuse()
        await execute("INSERT INTO facts VALUES (1)")


async def test_a_black_hole_delivers_nothing_until_it_heals(proxy: FaultProxy, url: str, direct: str) -> None:
    async with transaction(url) as execute:
        await proxy.black_hole()
        insert = asyncio.ensure_future(execute("INSERT INTO facts VALUES (1)"))
        assert (await asyncio.wait([insert], timeout=0.2))[1] == {insert}
        assert proxy.held == 1
        await proxy.pass_through()
        await insert
    assert await run(direct, "SELECT id FROM facts") == [(1,)]


async def test_a_black_hole_takes_new_connections_and_never_answers(proxy: FaultProxy, url: str) -> None:
    await proxy.black_hole()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await run(url, "SELECT 1")
    assert proxy.accepted == 1


async def test_what_a_black_hole_held_is_lost_by_an_abort(proxy: FaultProxy, url: str, direct: str) -> None:
    with pytest.raises(LOST):
        async with transaction(url) as execute:
            await execute("INSERT INTO facts VALUES (1)")
            await proxy.black_hole()
            asyncio.get_running_loop().call_later(0.1, proxy.abort)
    await proxy.pass_through()
    assert proxy.aborted == 1
    assert await run(direct, "SELECT id FROM facts") == []


async def test_a_delay_slows_each_round_trip_down(proxy: FaultProxy, url: str) -> None:
    async with transaction(url) as execute:
        await proxy.delay(0.1)
        start = time.monotonic()
        await execute("SELECT 1")
        assert time.monotonic() - start >= 0.2
        assert proxy.delayed >= 2
        await proxy.pass_through()


async def test_an_abort_resets_what_is_open_and_nothing_else(proxy: FaultProxy, url: str, direct: str) -> None:
    with pytest.raises(LOST):
        async with transaction(url) as execute:
            await execute("INSERT INTO facts VALUES (1)")
            proxy.abort()
            await execute("SELECT 1")
    assert proxy.aborted == 1
    assert await run(url, "SELECT id FROM facts") == []


async def test_a_swallowed_commit_is_applied_though_the_client_saw_an_error(
    proxy: FaultProxy, url: str, direct: str
) -> None:
    proxy.swallow_commits(1)
    with pytest.raises(LOST):
        await insert(url, 1)
    assert proxy.swallowed == 1
    assert await run(direct, "SELECT id FROM facts") == [(1,)]
    await insert(url, 2)
    assert proxy.swallowed == 1
    assert await run(direct, "SELECT id FROM facts ORDER BY id") == [(1,), (2,)]


@pytest.mark.parametrize("direct", ["postgres"], indirect=True)
async def test_a_statement_that_commits_by_itself_is_swallowed_too(proxy: FaultProxy, url: str, direct: str) -> None:
    client = await asyncpg.connect(url)
    assert await client.fetch("SELECT id FROM facts WHERE id > $1", 0) == []
    proxy.swallow_commits(1)
    async with client.transaction():
        await client.fetch("SELECT id FROM facts WHERE id > $1", 0)
        assert proxy.swallowed == 0, "a read is no commit"
        proxy.swallow_commits(0)
    proxy.swallow_commits(1)
    with pytest.raises(LOST):
        await client.execute("INSERT INTO facts VALUES ($1)", 1)
    assert proxy.swallowed == 1
    assert await run(direct, "SELECT id FROM facts") == [(1,)]


async def test_a_commit_of_sqlalchemy_is_swallowed_too(proxy: FaultProxy, url: str, direct: str) -> None:
    engine = create_async_engine(url.replace(urlsplit(url).scheme, DRIVERS[urlsplit(url).scheme], 1))
    proxy.swallow_commits(1)
    with pytest.raises((sqlalchemy.exc.DBAPIError, *LOST)):
        async with engine.begin() as connection:
            await connection.execute(text("INSERT INTO facts VALUES (1)"))
    assert proxy.swallowed == 1
    assert await run(direct, "SELECT id FROM facts") == [(1,)]
    async with engine.begin() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM facts"))).scalar() == 1
    await engine.dispose()


async def test_with_a_probability_each_lost_reply_is_counted_and_no_row_is_lost(
    proxy: FaultProxy, url: str, direct: str
) -> None:
    proxy.swallow_commits(0.5, random.Random(7))
    outcomes = await asyncio.gather(*(insert(url, number) for number in range(20)), return_exceptions=True)
    assert 0 < proxy.swallowed < 20
    assert sum(isinstance(outcome, LOST) for outcome in outcomes) == proxy.swallowed
    assert await run(direct, "SELECT count(*) FROM facts") == [(20,)]


async def test_a_rollback_is_no_commit(proxy: FaultProxy, url: str, direct: str) -> None:
    proxy.swallow_commits(1)
    with pytest.raises(ZeroDivisionError):
        async with transaction(url) as execute:
            await execute("INSERT INTO facts VALUES (1)")
            raise ZeroDivisionError
    assert proxy.swallowed == 0
    assert await run(direct, "SELECT id FROM facts") == []


async def test_a_commit_that_arrives_byte_by_byte_is_swallowed(proxy: FaultProxy, direct: str) -> None:
    async with byte_by_byte(proxy.port) as port:
        async with transaction(on_port(direct, port)) as execute:
            await execute("SELECT 1")
        proxy.swallow_commits(1)
        pieces = proxy.pieces
        with pytest.raises(LOST):
            await insert(on_port(direct, port), 1)
    assert proxy.pieces - pieces > 50, "the bytes arrived together: the run is void"
    assert proxy.swallowed == 1
    assert await run(direct, "SELECT id FROM facts") == [(1,)]


async def test_a_probability_needs_something_to_draw_from() -> None:
    with pytest.raises(ValueError, match="rng"):
        FaultProxy(LOOPBACK, 1).swallow_commits(0.5)


async def test_a_client_of_a_server_that_is_down_is_reset() -> None:
    async with FaultProxy(LOOPBACK, free_port()) as proxy:
        reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.transport.abort()


def postgres_message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def mysql_packet(sequence: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([sequence]) + body


POSTGRES_TALK = [
    (postgres_message(b"", struct.pack("!i", 80877103)), False),
    (postgres_message(b"", struct.pack("!i", 196608) + b"user\0rota\0\0"), False),
    (postgres_message(b"Q", b"BEGIN;\0"), False),
    (postgres_message(b"Q", b"INSERT INTO t VALUES ('COMMIT')\0"), False),
    (postgres_message(b"P", b"\0COMMIT\0\0\0"), False),
    (postgres_message(b"Q", b"COMMIT;\0"), True),
    (postgres_message(b"Q", b"  commit\0"), True),
    (postgres_message(b"Q", b"ROLLBACK;\0"), False),
    (postgres_message(b"X", b""), False),
]
MYSQL_TALK = [
    (mysql_packet(1, b"\x03COMMIT is a password here"), False),
    (mysql_packet(0, b"\x03SET AUTOCOMMIT = 0"), False),
    (mysql_packet(0, b"\x03COMMIT"), True),
    (mysql_packet(0, b"\x16COMMIT"), False),
    (mysql_packet(0, b"\x01"), False),
]


@pytest.mark.parametrize(
    ("wire", "talk"),
    [pytest.param(PostgresWire, POSTGRES_TALK, id="postgres"), pytest.param(MysqlWire, MYSQL_TALK, id="mysql")],
)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 1000])
def test_messages_are_found_however_the_network_cut_them(
    wire: type[Wire], talk: list[tuple[bytes, bool]], size: int
) -> None:
    sent = b"".join(data for data, _ in talk)
    reading = wire()
    found = [message for start in range(0, len(sent), size) for message in reading.cut(sent[start : start + size])]
    assert [tuple(message) for message in found] == talk


def test_an_encrypted_session_passes_uncut() -> None:
    hello = b"\x16\x03\x01\x00\x05hello"
    requests: list[tuple[Wire, bytes]] = [
        (PostgresWire(), postgres_message(b"", struct.pack("!i", 80877103))),
        (MysqlWire(), mysql_packet(1, struct.pack("<i", MysqlWire.CLIENT_SSL) + bytes(28))),
    ]
    for wire, request in requests:
        passed = [message.data for chunk in (request, hello, b"\x03more") for message in wire.cut(chunk)]
        assert b"".join(passed) == request + hello + b"\x03more"


def test_a_reply_is_whole_only_with_its_last_byte() -> None:
    postgres = postgres_message(b"C", b"COMMIT\0") + postgres_message(b"Z", b"I")
    mysql = mysql_packet(1, b"\0\0\0\2\0\0\0")
    replies: list[tuple[Wire, bytes]] = [(PostgresWire(), postgres), (MysqlWire(), mysql)]
    for wire, reply in replies:
        assert [wire.ends_reply(reply[:size]) for size in range(len(reply) + 1)] == [False] * len(reply) + [True]


def test_the_protocol_is_known_by_who_speaks_first() -> None:
    assert isinstance(wire_of_client(POSTGRES_TALK[0][0]), PostgresWire)
    assert isinstance(wire_of_client(POSTGRES_TALK[1][0]), PostgresWire)
    assert isinstance(wire_of_server(mysql_packet(0, b"\x0a11.4.2-MariaDB\0")), MysqlWire)
    assert wire_of_client(POSTGRES_TALK[0][0][:7]) is None
    assert wire_of_server(b"\x4a\0\0\0") is None
    for wire in (wire_of_client(b"GET"), wire_of_server(b"220 ready\r\n")):
        assert wire is not None
        assert [tuple(message) for message in wire.cut(b"COMMIT")] == [(b"COMMIT", False)]


def on_port(url: str, port: int) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}").geturl()


async def insert(url: str, number: int) -> None:
    async with transaction(url) as execute:
        await execute(f"INSERT INTO facts VALUES ({number})")


@asynccontextmanager
async def transaction(url: str) -> AsyncIterator[Callable[[str], Awaitable[object]]]:
    """One transaction of the bare driver: yields a function that executes statements, commits at the end."""
    if url.startswith("postgresql:"):
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                yield connection.execute
        finally:
            connection.terminate()
    else:
        connection = await connect_mysql(url)
        try:
            async with connection.cursor() as cursor:
                yield cursor.execute
            await connection.commit()
        finally:
            connection.close()


@asynccontextmanager
async def byte_by_byte(target: int) -> AsyncIterator[int]:
    """A port that passes what a client sends on to `target` as single bytes."""

    carriers: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = asyncio.current_task()
        assert own is not None
        carriers.add(own)
        from_target, to_target = await asyncio.open_connection(LOOPBACK, target)
        back = asyncio.create_task(pour(from_target, writer, size=65536))
        carriers.add(back)
        await pour(reader, to_target, size=1)
        await back

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int) -> None:
        try:
            while chunk := await reader.read(size):
                writer.write(chunk)
                await writer.drain()
                await asyncio.sleep(0)  # one turn of the loop: the other side reads
        except OSError:
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(carry, LOOPBACK, free_port())
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        for task in carriers:
            task.cancel()
        await asyncio.gather(*carriers, return_exceptions=True)
