"""Nodes join by starting, serve their health, and check each other (S1.5, S1.7, S1.8, S1.9, S1.17, S1.18, S1.20)."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request
from pathlib import Path

import pytest

from rota.model.cluster import Peer
from tests.cluster.processes import lease
from tests.cluster.shift import Shift, a_shift
from tests.servers.postgres import PostgresServer

LEASE_S = 60.0
SETTINGS = {"ROTA_NODE_CHECK_S": "0.5", "ROTA_EXECUTOR_SEATS": "1", **lease(LEASE_S, 1)}


async def peers(shift: Shift) -> dict[str, Peer]:
    """What the nodes tell of themselves, by raw SQL."""
    from rota.model.value import decode

    rows = await shift.witness.ask("SELECT value FROM rota_entry WHERE folder = 'live'")
    found = [decode(value, Peer) for (value,) in rows]
    return {peer.name: peer for peer in found}


def asked(address: str, path: str) -> tuple[int, dict[str, object]]:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
        return answer.status, json.loads(answer.read())


@pytest.mark.timeout(120)
async def test_nodes_find_and_check_each_other_without_being_told_of_any(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    async with postgres_server.fresh_database() as url, a_shift(url, tmp_path, settings=SETTINGS) as shift:
        await shift.start("a", "b")

        async def both() -> bool:
            found = await peers(shift)
            return set(found) == {"a", "b"} and all(it.address for it in found.values())

        await shift.until_asked(both, "both to take part")
        known = await peers(shift)
        assert known["a"].address != known["b"].address
        for name, peer in known.items():
            status, body = await asyncio.to_thread(asked, peer.address, "/healthz")
            assert (status, body["node"]) == (200, name)
            assert (await asyncio.to_thread(asked, peer.address, "/readyz"))[1]["ready"] is True

        # One whose agent hangs is shown as unreachable by the other, and not acted on: its lease is alive.
        shift.nodes["b"].send(signal.SIGSTOP)

        async def unreachable() -> bool:
            found = (await peers(shift)).get("a")
            return found is not None and found.unreachable == ("b",)

        await shift.until_asked(unreachable, "a to see that b cannot be reached")
        assert await shift.witness.ask("SELECT state FROM rota_node WHERE name = 'b'") == [("online",)]
        shift.nodes["b"].send(signal.SIGCONT)

        async def reachable() -> bool:
            found = await peers(shift)
            return {"a", "b"} <= found.keys() and found["a"].unreachable == ()

        await shift.until_asked(reachable, "a to see b again")


@pytest.mark.timeout(60)
async def test_a_port_that_was_asked_for_and_is_taken_is_refused(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    async with postgres_server.fresh_database() as url, a_shift(url, tmp_path, settings=SETTINGS) as shift:
        taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = taken.sockets[0].getsockname()[1]
        node = shift.node("a", settings={"ROTA_NODE_LISTEN": f"127.0.0.1:{port}"})
        node.start()
        assert await asyncio.to_thread(node.ended, 30) != 0
        assert "node.listen" in node.log
        assert f"127.0.0.1:{port} cannot be listened on" in node.log
        taken.close()
        await taken.wait_closed()
