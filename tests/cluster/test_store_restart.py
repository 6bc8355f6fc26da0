"""The store's server is killed while jobs fire: nothing is lost or doubled, late slots follow their policy, what was
acknowledged is still there, and the nodes go on by themselves (P12, P13)."""

import asyncio
from pathlib import Path

import pytest

from tests.cluster.rig import Rig, Scene, a_rig
from tests.conftest import installed
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer

DOWN_S = (0.0, 2.5)
BETWEEN_S = 4.0
BACK_S_MAX = 4.0
"""The promise is two seconds after the server answers; the rest is for a loaded machine."""
SCENE = Scene(seconds=0, seed=1, skew_s=7, jobs=120, herd=0, direct=True)


async def back_after_s(rig: Rig, ready: int) -> dict[str, float]:
    """How long after an instant each node wrote its next run."""
    written = "SELECT actor, min(at) FROM rota_event WHERE kind IN ('run.started', 'run.skipped')"
    found = await rig.witness.ask(f"{written} AND actor <> 'operator' AND at > {ready} GROUP BY actor")
    return {actor: (at - ready) / 1_000_000 for actor, at in found}


@pytest.mark.timeout(150)
@pytest.mark.parametrize("kind", [PostgresServer, MariadbServer])
async def test_a_killed_server_costs_time_but_no_slot_and_no_acknowledged_change(
    kind: type[PostgresServer] | type[MariadbServer], tmp_path: Path
) -> None:
    with installed(kind) as server:
        url = server.url(await server.create_database())
        async with a_rig(url, SCENE, tmp_path) as rig:
            await rig.start_nodes()
            await rig.define()
            stop, readies = asyncio.Event(), []
            async with asyncio.TaskGroup() as group:
                group.create_task(rig.change_jobs(stop))
                for down_s in DOWN_S:
                    await asyncio.sleep(BETWEEN_S)
                    await asyncio.to_thread(server.kill)
                    await asyncio.sleep(down_s)
                    await asyncio.to_thread(server.start)
                    readies.append(await rig.witness.now())
                await asyncio.sleep(BETWEEN_S)
                stop.set()
            await asyncio.sleep(SCENE.calm_s)
            outcome = await rig.judged()
            back = [await back_after_s(rig, ready) for ready in readies]
    print(f"\n{server.name} killed {len(DOWN_S)} times: {outcome}\n  nodes back after {back}")
    assert outcome.counts["changes"] > 20, "void: too few changes were acknowledged"
    assert outcome.missed.late > 0, "void: the server was not away for long enough to miss a slot"
    assert outcome.clean, outcome.evidence()
    assert outcome.counts["failed_rounds"] == 0
    for times in back:
        assert len(times) == len(rig.nodes), "a node did not come back"
        assert min(times.values()) <= BACK_S_MAX
