"""Breaks things by a seeded plan: kills and restarts nodes, freezes them, resets and cuts their connections, and loses
the replies to their commits. It counts what it did, so that a run without effect can be called void.

Each kind of fault draws from its own random numbers, so one kind does not change the plan of another.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tests.cluster.processes import NodeProcess
from tests.servers.proxy import FaultProxy


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How often each fault comes, as the mean pause between two in seconds (0: never), and how likely a commit loses
    its reply."""

    kill_s: float = 1.2
    freeze_s: float = 5.0
    reset_s: float = 7.0
    cut_s: float = 11.0
    swallow: float = 0.08


class Nemesis:
    """Acts on the nodes and on the proxy between them and the store."""

    def __init__(self, nodes: Sequence[NodeProcess], proxy: FaultProxy, faults: Faults, seed: int) -> None:
        self._nodes = nodes
        self._proxy = proxy
        self._faults = faults
        self._seed = seed
        self.counts: Counter[str] = Counter()

    async def run(self, seconds: float) -> None:
        """Break things for so long; then heal everything."""
        self._swallow()
        deeds = {
            self._kill: self._faults.kill_s,
            self._freeze: self._faults.freeze_s,
            self._reset: self._faults.reset_s,
            self._cut: self._faults.cut_s,
        }
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for deed, pause_s in deeds.items():
                    group.create_task(self._again_and_again(deed, pause_s))
                await asyncio.Event().wait()
        except TimeoutError:
            pass
        finally:
            await self.heal()

    async def heal(self) -> None:
        """Let every node run and every byte through."""
        self.counts["swallowed"] = self._proxy.swallowed
        self.counts["reset_connections"] = self._proxy.aborted
        await self._proxy.pass_through()
        for node in self._nodes:
            node.thaw()
            if not node.running:
                node.start()

    async def _again_and_again(self, deed: Callable[[random.Random], Awaitable[None]], pause_s: float) -> None:
        rng = random.Random(f"{self._seed} {deed.__name__}")
        while pause_s:
            await asyncio.sleep(rng.uniform(0.4, 1.6) * pause_s)
            await deed(rng)

    async def _kill(self, rng: random.Random) -> None:
        node = rng.choice(self._nodes)
        down_s = rng.uniform(0.2, 2.0)
        if node.running:
            node.kill()
            self.counts["kills"] += 1
            await asyncio.sleep(down_s)
        if not node.running:
            node.start()

    async def _freeze(self, rng: random.Random) -> None:
        node = rng.choice(self._nodes)
        node.freeze()
        self.counts["freezes"] += 1
        await asyncio.sleep(rng.uniform(1, 4))
        node.thaw()

    async def _reset(self, _: random.Random) -> None:
        self._proxy.abort()
        self.counts["resets"] += 1

    async def _cut(self, rng: random.Random) -> None:
        await self._proxy.black_hole()
        self.counts["cuts"] += 1
        await asyncio.sleep(rng.uniform(0.5, 2.5))
        await self._proxy.pass_through()
        self._swallow()

    def _swallow(self) -> None:
        self._proxy.swallow_commits(self._faults.swallow, random.Random(f"{self._seed} swallow {self.counts['cuts']}"))
