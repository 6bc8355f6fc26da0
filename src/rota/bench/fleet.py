"""Real nodes: `rota node` processes of their own, started, seen to have joined, and stopped.

A node that ends before it was told to is an error; the end of its log says why.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from rota.errors import Refused
from rota.model.node import NodeState
from rota.model.value import Value
from rota.ports import Clock, Store

APP = Path(__file__).with_name("noop.py")
START_S = 60.0
STOP_S = 30.0
ENTRY = """
import json, sys
from sqlalchemy import Engine, event
from rota.cli.main import run

sent = 0

@event.listens_for(Engine, "before_cursor_execute")
def note(*_):
    global sent
    sent += 1

code = run(sys.argv[1:])
print(json.dumps({"statements": sent}), file=sys.stderr)
sys.exit(code)
"""
"""The command line of rota, which at its end tells how many statements it has sent to its store."""


class FleetPlan(Value, frozen=True, kw_only=True):
    """How many nodes, each with how many seats, on which store."""

    url: str
    nodes: int
    seats: int
    folder: str


class _Node(NamedTuple):
    name: str
    process: asyncio.subprocess.Process
    log: Path


class Fleet:
    """The nodes of one phase. They get this process's environment, so that its settings hold for them too."""

    def __init__(self, plan: FleetPlan, store: Store, clock: Clock) -> None:
        self._plan = plan
        self._store = store
        self._clock = clock
        self._nodes: list[_Node] = []

    async def __aenter__(self) -> Self:
        try:
            for number in range(1, self._plan.nodes + 1):
                self._nodes.append(await self._start(f"bench-{number}"))
            await self._joined()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def check(self) -> None:
        """Raise if a node is not there any more."""
        for node in self._nodes:
            if node.process.returncode is not None:
                raise Refused(f"{node.name} ended with exit code {node.process.returncode}:\n{_end_of(node.log)}")

    async def stop(self) -> int | None:
        """Stop the nodes; says how many statements they sent to the store, if they told."""
        nodes, self._nodes = self._nodes, []
        for node in nodes:
            with suppress(ProcessLookupError):
                node.process.terminate()
        await asyncio.gather(*(_ended(node.process) for node in nodes))
        told = [_statements(node.log) for node in nodes]
        return None if None in told else sum(count for count in told if count is not None)

    async def _start(self, name: str) -> _Node:
        log = Path(self._plan.folder) / f"{name}-{self._clock.token()[:8]}.log"
        command = ["node", "start", "--name", name, "--app", str(APP), "--log-format", "json"]
        settings = {"ROTA_STORE": self._plan.url, "ROTA_EXECUTOR_SEATS": str(self._plan.seats)}
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *["-c", ENTRY, *command],
                env={**os.environ, **settings},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        return _Node(name, process, log)

    async def _joined(self) -> None:
        """Wait until all are members and offer the app's tasks."""
        wanted = {node.name for node in self._nodes}
        began_s = self._clock.monotonic()
        while wanted - await self._ready():
            self.check()
            if self._clock.monotonic() - began_s > START_S:
                late = "\n".join(f"{node.name}: {_end_of(node.log)}" for node in self._nodes)
                raise Refused(f"not all nodes joined within {START_S:g} s:\n{late}")
            await self._clock.sleep(0.1)

    async def _ready(self) -> set[str]:
        members = await self._store.nodes()
        return {it.joined.name for it in members.nodes if it.state is NodeState.ONLINE and it.joined.handlers}


async def _ended(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-10:])


def _statements(log: Path) -> int | None:
    """What the last line of a node says."""
    for line in reversed(log.read_text(errors="replace").splitlines()):
        with suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict) and isinstance(said.get("statements"), int):
                return int(said["statements"])
    return None
