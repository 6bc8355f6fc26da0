"""The store's server is killed while jobs fire: nothing is lost or doubled, late slots follow their policy, what was
acknowledged is still there, and the nodes go on by themselves (P12, P13)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cluster.rig import Rig, Scene, a_rig
from tests.conftest import installed
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer

Server = PostgresServer | MariadbServer
Kind = type[PostgresServer] | type[MariadbServer]

BETWEEN_S = 3.0
BACK_S_MAX = 4.0
"""The promise is two seconds after the server answers; the rest is for a loaded machine."""
CHANGES_MIN = 20
SCENE = Scene(seconds=0, seed=1, skew_s=7, jobs=120, herd=0, direct=True)


async def kill_and_judge(kind: Kind, down_s: Sequence[float], folder: Path) -> None:
    with installed(kind) as server:
        url = server.url(await server.create_database())
        async with a_rig(url, SCENE, folder) as rig:
            await rig.start_nodes()
            await rig.define()
            stop = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                group.create_task(rig.change_jobs(stop))
                back = [await killed(rig, server, seconds) for seconds in down_s]
                await asyncio.sleep(BETWEEN_S)
                await changed(rig)
                stop.set()
            await asyncio.sleep(SCENE.calm_s)
            outcome = await rig.judged()
            silent = [node.name for node in rig.nodes if "out of reach" in node.log.splitlines()[-1]]
            back_s = [(await rig.witness.ask(_FIRST.format(since=ready)))[0][0] - ready for ready in back]
    figures = ", ".join(f"{it / 1e6:.2f} s" for it in back_s)
    print(f"\n{server.name} killed {len(down_s)} times: {outcome}\n  firing again {figures} after the server answered")
    assert outcome.counts["changes"] > CHANGES_MIN, "void: too few changes were acknowledged"
    assert outcome.missed.late > 0, "void: the server was not away for long enough to miss a slot"
    assert outcome.clean, outcome.evidence()
    assert not silent, f"{silent} did not come back"
    assert max(back_s) <= BACK_S_MAX * 1e6


_FIRST = (
    "SELECT min(at) FROM rota_event"
    " WHERE kind IN ('run.started', 'run.skipped') AND actor <> 'operator' AND at > {since}"
)


async def killed(rig: Rig, server: Server, down_s: float) -> int:
    """Kill the server, leave it dead for a while, start it; returns the store's instant at which it answers again."""
    await asyncio.sleep(BETWEEN_S)
    await asyncio.to_thread(server.kill)
    await asyncio.sleep(down_s)
    await asyncio.to_thread(server.start)
    return await rig.witness.now()


async def changed(rig: Rig) -> None:
    """Wait until there are enough changes."""
    query = "SELECT count(*) FROM rota_event WHERE kind IN ('job.changed', 'job.paused', 'job.resumed')"
    async with asyncio.timeout(60):
        while (await rig.witness.ask(query))[0][0] <= CHANGES_MIN:
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("kind", [PostgresServer, MariadbServer])
async def test_a_killed_server_costs_time_but_no_slot_and_no_acknowledged_change(kind: Kind, tmp_path: Path) -> None:
    await kill_and_judge(kind, [2.0], tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [PostgresServer, MariadbServer])
async def test_a_server_that_is_killed_again_and_again_costs_no_slot_either(kind: Kind, tmp_path: Path) -> None:
    await kill_and_judge(kind, [0, 2, 0, 5, 0, 1, 0, 20, 0, 0], tmp_path)
