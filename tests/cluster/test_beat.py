"""Placement `beat` with real nodes: the one that has less to do has the beats."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rota.model.cluster import Peer
from rota.model.value import decode
from tests.cluster.processes import lease
from tests.cluster.shift import Shift, a_shift, quotas
from tests.servers.postgres import PostgresServer

BEATS = 8
"""So many has the idle one; of three beats at most one may go to the busy one, when the idle one is late by more than
its lead: that it never does where nobody is late is proven in `tests/sim/test_beat.py`."""
SETTINGS = {
    "ROTA_PLACEMENT_KIND": "beat",
    "ROTA_PLACEMENT_BEAT_S": "2",
    "ROTA_EXECUTOR_SEATS": "4",
    **lease(10, 1),
}


async def winners(shift: Shift) -> dict[str, str]:
    """By beat, the name of the node that has it."""
    rows = await shift.witness.ask("SELECT value FROM rota_entry WHERE folder = 'live'")
    names = {peer.incarnation: peer.name for peer in (decode(value, Peer) for (value,) in rows)}
    won = await shift.witness.ask("SELECT key, value FROM rota_entry WHERE folder = 'beat' AND key LIKE 'beat/fire-%'")
    return {key: names[incarnation] for key, incarnation in won if incarnation in names}


@pytest.mark.timeout(120)
async def test_the_node_whose_seats_are_free_has_the_beats(postgres_server: PostgresServer, tmp_path: Path) -> None:
    async with postgres_server.fresh_database() as url, a_shift(url, tmp_path, settings=SETTINGS) as shift:
        await quotas(shift.control, ["t"], cap=4)
        await shift.start("a")
        await shift.assign("t", 4, info={"ms": 110_000})
        await shift.until(lambda: len(shift.watcher.executing()) == 4, "all seats of a to be taken")
        await shift.start("b")
        found: dict[str, str] = {}

        async def enough() -> bool:
            found.update(await winners(shift))
            await asyncio.sleep(0.1)
            return list(found.values()).count("b") >= BEATS

        await shift.until_asked(enough, "b to have some beats", 60)
        beats = [found[key] for key in sorted(found)]
        since = beats[beats.index("b") :]
        print(f"\nbeats since b takes part: {since}")
        assert since.count("b") >= 3 * since.count("a"), since
