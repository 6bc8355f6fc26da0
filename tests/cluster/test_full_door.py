"""A node whose port is full of connections that say nothing, or next to nothing, goes on with its work."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.cluster.processes import NodeProcess, lease
from tests.cluster.shift import Shift, a_shift, quotas
from tests.servers.ports import free_port
from tests.servers.postgres import PostgresServer

CALLERS = 1300
AWAY_S = 2.0
CHECKS = 3
"""So many checks in a row fail before a node's peers believe that it is gone."""
FEW = ("prlimit", "--nofile=1024:1024")
SETTINGS = {"ROTA_EXECUTOR_SEATS": "4", **lease(3, 0.5)}


class Crowd:
    """Callers of a port. Every other one sends one letter of a header now and then; whoever is cut off comes again,
    each after a time of its own: they crowd the door all the time, not in waves."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.came = 0

    async def stay(self, number: int) -> None:
        while True:
            with suppress(OSError):
                await self._call(number)
            await asyncio.sleep(AWAY_S * (0.5 + number / CALLERS))

    async def _call(self, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self.came += 1
        try:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: " if number % 2 else b"")
            while not reader.at_eof():
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await reader.read(1)
                writer.write(b"a" if number % 2 else b"")
        finally:
            writer.close()


@asynccontextmanager
async def a_crowd(port: int) -> AsyncIterator[Crowd]:
    crowd = Crowd(port)
    callers = [asyncio.create_task(crowd.stay(number)) for number in range(CALLERS)]
    try:
        yield crowd
    finally:
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)


async def answers(port: int) -> bool:
    """Whether the node answers somebody who asks properly, as often as its peers would."""
    for _ in range(CHECKS):
        if b'"node":"a"' in await asyncio.to_thread(answer, port):
            return True
    return False


def answer(port: int) -> bytes:
    """What the node says to one who asks as soon as he is connected: in a thread, because the crowd is slow to turn to
    anybody, and who holds a connection without a word is cut off."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return b"".join(iter(lambda: connection.recv(4096), b""))
    except OSError:
        return b""


def descriptors(node: NodeProcess) -> int:
    return len(list(Path(f"/proc/{node.pid}/fd").iterdir()))


async def renewals(shift: Shift) -> int:
    ((beat,),) = await shift.witness.ask("SELECT beat FROM rota_lease")
    return int(beat)


@pytest.mark.timeout(120)
async def test_a_node_goes_on_while_more_callers_than_it_has_descriptors_fill_its_door(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    port = free_port()
    settings = {**SETTINGS, "ROTA_NODE_LISTEN": f"127.0.0.1:{port}"}
    async with postgres_server.fresh_database() as url, a_shift(url, tmp_path, settings=settings) as shift:
        await quotas(shift.control, ["t"], cap=4)
        (node,) = await shift.start("a", within=FEW)
        async with a_crowd(port) as crowd:
            await shift.until(lambda: crowd.came >= CALLERS, "the crowd to have come")
            before, begun = await renewals(shift), time.monotonic()
            told = await shift.assign("t", 12, info={"ms": 50})
            await shift.until_idle()
            assert {state for state, _, _ in (await shift.items(told.id)).values()} == {"succeeded"}
            while time.monotonic() - begun < 4:  # longer than a lease
                assert await answers(port)
                assert descriptors(node) < 1024 - 512
                await asyncio.sleep(0.2)
            assert await renewals(shift) > before
        assert await answers(port)
        assert "lease.lost" not in node.log
        assert shift.surprises() == []
        assert "out of system resource" not in node.log
