"""Connections that die without a word, as when a firewall forgets them, are given up in bounded time.

Nothing is reset and nothing is refused: what was sent is never answered. New connections work.
"""

import asyncio
from pathlib import Path

import pytest

from tests.cluster.rig import Rig, Scene, a_rig

GIVEN_UP_S = 20.0
SCENE = Scene(seconds=0, seed=1, skew_s=7, jobs=60, herd=0)


async def forsake_connections(rig: Rig) -> None:
    """Every connection that speaks within the next seconds is never served again; later ones are."""
    await rig.proxy.black_hole()
    await asyncio.sleep(3)
    assert rig.proxy.held >= len(rig.nodes), "void: the nodes were not using their connections"
    rig.proxy._flowing = asyncio.Event()
    rig.proxy._flowing.set()


@pytest.mark.nightly
@pytest.mark.parametrize("store", ["postgres", "mariadb"])
async def test_every_node_goes_on_after_its_connections_died_silently(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with request.getfixturevalue(f"{store}_server").fresh_database() as url, a_rig(url, SCENE, tmp_path) as rig:
        await rig.start_nodes()
        await rig.define()
        await asyncio.sleep(2)
        await forsake_connections(rig)
        since = await rig.witness.now()
        await asyncio.sleep(GIVEN_UP_S + 5)
        outcome = await rig.judged()
        kinds = "('run.started', 'run.skipped')"
        back = await rig.witness.ask(
            f"SELECT actor, min(at) FROM rota_event WHERE kind IN {kinds} AND at > {since} GROUP BY actor"
        )
    print(f"\nsilent death on {store}: {outcome}\n  firing again after {[(at - since) / 1e6 for _, at in back]} s")
    assert outcome.clean, outcome.evidence()
    assert len(back) == len(rig.nodes), f"only {back} came back"
    assert max(at - since for _, at in back) <= GIVEN_UP_S * 1e6
