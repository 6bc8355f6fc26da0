"""What a node does by its roles: fire, execute, or both."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.config import config_of, load
from rota.loops.dispatcher import Dispatcher
from rota.loops.executor import Executor
from rota.loops.inspector import Inspector
from rota.loops.node_process import NodeProcess
from rota.loops.pruner import Pruner
from rota.loops.scheduler import Scheduler
from rota.model.cluster import UNREACHABLE_AFTER
from rota.ports import Store
from rota.wiring import node, open_store
from tests.factories import a_node
from tests.servers.ports import free_port


async def a_host(folder: Path, roles: str) -> tuple[Store, NodeProcess]:
    settings = {"node.roles": roles, "executor.state_path": str(folder), "logs.path": str(folder / "logs")}
    config = config_of(load(flags={**settings, "node.name": "a", "node.listen": "127.0.0.1:0", "executor.seats": "2"}))
    clock = SystemClock()
    store = open_store("memory:", clock, actor="test")
    return store, await node(store, clock, config, [])


@pytest.mark.parametrize(
    ("roles", "fires", "executes"), [("all", True, True), ("scheduler", True, False), ("executor", False, True)]
)
async def test_a_node_does_what_its_roles_say(tmp_path: Path, *, roles: str, fires: bool, executes: bool) -> None:
    _, host = await a_host(tmp_path, roles)
    assert any(isinstance(it, Scheduler) for it in host.firing) == fires
    assert (host.participation is not None) == fires
    assert any(isinstance(it, Executor) for it in host.working) == executes
    (pruner,) = (it for it in host.working if isinstance(it, Pruner))
    if not fires:
        assert not await pruner.duty.is_mine()
    told = host.member.describe("token")
    assert (told.seats, told.digests.get("roles", "all")) == (2 if executes else 0, roles)
    assert host.door is not None
    await host.door.close()


@pytest.mark.parametrize("roles", ["all", "scheduler", "executor"])
async def test_a_node_of_every_role_leaves_out_who_does_not_answer(tmp_path: Path, roles: str) -> None:
    """S1.16 to S1.18: all of them make rounds."""
    store, host = await a_host(tmp_path, roles)
    place = host.member.describe("token").place
    silent = await a_node(store, "silent", place=place, address=f"127.0.0.1:{free_port()}")
    (inspector,) = (it for it in host.working if isinstance(it, Inspector))
    (dispatcher,) = (it for it in host.working if isinstance(it, Dispatcher))
    for count in range(1, UNREACHABLE_AFTER + 1):
        await inspector.once()
        assert dispatcher._board.unreachable == (frozenset({silent}) if count == UNREACHABLE_AFTER else frozenset())
    assert host.door is not None
    await host.door.close()
