"""What a node does by its roles: fire, execute, or both."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.config import config_of, load
from rota.loops.executor import Executor
from rota.loops.pruner import Pruner
from rota.loops.scheduler import Scheduler
from rota.wiring import node, open_store, scheduler


@pytest.mark.parametrize(
    ("roles", "fires", "executes"), [("all", True, True), ("scheduler", True, False), ("executor", False, True)]
)
async def test_a_node_does_what_its_roles_say(tmp_path: Path, *, roles: str, fires: bool, executes: bool) -> None:
    settings = {"node.roles": roles, "executor.state_path": str(tmp_path), "logs.path": str(tmp_path / "logs")}
    config = config_of(load(flags={**settings, "node.name": "a", "node.listen": "127.0.0.1:0", "executor.seats": "2"}))
    clock = SystemClock()
    store = open_store("memory:", clock, actor="test")
    host = await node(store, clock, config, [], scheduler(store, clock, config))
    assert any(isinstance(it, Scheduler) for it in host.firing) == fires
    assert (host.part is not None) == fires
    assert any(isinstance(it, Executor) for it in host.working) == executes
    (pruner,) = (it for it in host.working if isinstance(it, Pruner))
    if not fires:
        assert not await pruner._duty.is_mine()
    told = host.member._describe("token")
    assert (told.seats, told.digests.get("roles", "all")) == (2 if executes else 0, roles)
    assert host.door is not None
    await host.door.close()
