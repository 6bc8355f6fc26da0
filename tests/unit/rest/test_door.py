"""The port of a node, over real connections: how many it has, and for how long."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rota.rest.door import Connections, Door, app

ASK = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
PATIENCE_S = 30.0


class Caller:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def asks(self) -> bytes:
        self.writer.write(ASK)
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            await self.reader.readuntil(b"}")
        return head.partition(b"\r\n")[0]

    async def cut_off(self) -> None:
        """Wait until the other side has closed."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                await self.reader.read()
            except ConnectionError:
                return


class Rig:
    def __init__(self, door: Door, connections: Connections) -> None:
        self._door = door
        self.connections = connections
        self.callers: list[Caller] = []

    async def caller(self) -> Caller:
        host, port = self._door.address.split(":")
        self.callers.append(Caller(*await asyncio.open_connection(host, int(port))))
        return self.callers[-1]

    async def until_open(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.connections) != count:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def a_door(most: int = 3, wait_s: float = 60.0) -> AsyncIterator[Rig]:
    connections = Connections(most, wait_s)
    door = Door(app("a", "1", lambda: 7), "127.0.0.1:0", connections=connections)
    door._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # so that it is soon full
    rig = Rig(door, connections)
    await door.open()
    try:
        yield rig
    finally:
        for caller in rig.callers:
            caller.writer.close()
        await door.close()


async def test_a_full_door_cuts_off_the_longest_idle_and_answers_the_newcomer() -> None:
    async with a_door(most=3) as rig:
        first, second, third = [await rig.caller() for _ in range(3)]
        await rig.until_open(3)
        assert await first.asks() == b"HTTP/1.1 200 OK"  # from now on the second is idle for longest
        newcomer = await rig.caller()
        assert await newcomer.asks() == b"HTTP/1.1 200 OK"
        await second.cut_off()
        assert len(rig.connections) == 3
        for caller in (first, third, newcomer):
            assert await caller.asks() == b"HTTP/1.1 200 OK"


async def test_who_sends_a_head_letter_by_letter_is_cut_off_and_so_is_who_says_nothing() -> None:
    async with a_door(wait_s=2.0) as rig:
        silent, slow = await rig.caller(), await rig.caller()
        answered = await rig.caller()
        assert await answered.asks() == b"HTTP/1.1 200 OK"

        async def drip() -> None:
            slow.writer.write(b"GET /healthz HTTP/1.1\r\nX: ")
            while not slow.writer.is_closing():
                slow.writer.write(b"a")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        try:
            await asyncio.gather(silent.cut_off(), slow.cut_off(), answered.cut_off())
        finally:
            dripping.cancel()
        await rig.until_open(0)
        assert await (await rig.caller()).asks() == b"HTTP/1.1 200 OK"


async def who_does_not_read(rig: Rig) -> Caller:
    """Asks again and again, and reads no answer, until the door has not been able to write to it for some turns."""
    caller = await rig.caller()
    await rig.until_open(1)
    (connection,) = rig.connections._open
    stuck = 0
    async with asyncio.timeout(PATIENCE_S):
        while stuck < 100 and connection in rig.connections._open:
            stuck = stuck + 1 if connection.flow.write_paused else 0
            if not caller.writer.transport.get_write_buffer_size():
                caller.writer.write(ASK * 1000)
            await asyncio.sleep(0.001)
    return caller


async def test_who_asks_and_never_reads_is_cut_off() -> None:
    async with a_door(wait_s=2.0) as rig:
        await who_does_not_read(rig)
        await rig.until_open(0)
        assert await (await rig.caller()).asks() == b"HTTP/1.1 200 OK"


async def test_a_door_full_of_those_who_never_read_answers_the_newcomer() -> None:
    async with a_door(most=1) as rig:
        await who_does_not_read(rig)
        assert await (await rig.caller()).asks() == b"HTTP/1.1 200 OK"


async def test_a_head_without_end_and_what_is_not_http_are_refused_without_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_door() as rig:
        for nonsense in (b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000, b"\x16\x03\x01\x02\x00\x01\x00"):
            caller = await rig.caller()
            caller.writer.write(nonsense)
            await caller.cut_off()
        assert await (await rig.caller()).asks() == b"HTTP/1.1 200 OK"
    assert caplog.records == []


@pytest.mark.parametrize(
    ("client", "server", "scheme", "status"),
    [
        ("127.0.0.1", "127.0.0.1", "http", 404),
        ("::1", "::1", "http", 404),
        ("192.0.2.1", "192.0.2.2", "http", 403),
        ("127.0.0.1", "192.0.2.2", "http", 403),
        ("192.0.2.1", "127.0.0.1", "http", 403),
        ("192.0.2.1", "192.0.2.2", "https", 404),
    ],
)
async def test_beyond_loopback_and_without_tls_only_health_answers(
    client: str, server: str, scheme: str, status: int
) -> None:
    async def asked(path: str) -> int:
        sent: list[MutableMapping[str, Any]] = []

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [],
            "client": (client, 1),
            "server": (server, 7700),
            "scheme": scheme,
        }
        await app("a", "1", lambda: None)(scope, receive, send)
        return int(sent[0]["status"])

    assert await asked("/healthz") == 200
    assert await asked("/readyz") == 503
    assert await asked("/api/v1/jobs") == status
    assert await asked("/healthz/../api") == status
