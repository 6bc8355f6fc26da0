"""Inspect: each node asks the others, over HTTP, whether they live (S1.17, S1.18, S1.20).

    ask every other node      ──answers──> count 0
                              └─does not─> count + 1 ──three in a row──> told under this node's session: unreachable

That a peer cannot be reached is shown, and acted on only when its lease has ended too: then it is rescued, whoever can
reach it. Counts are this observer's own (A1.5) and go with its session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rota.loops.loop import Loop
from rota.loops.placement.attendant import Attendant
from rota.model.cluster import UNREACHABLE_AFTER
from rota.ports import Clock, Store

log = structlog.get_logger()

Ping = Callable[[str], Awaitable[bool]]


class Inspector(Loop):
    """Looks after the other nodes of the cluster."""

    def __init__(self, store: Store, clock: Clock, attendant: Attendant, ping: Ping, *, every_s: float) -> None:
        super().__init__(clock)
        self._store = store
        self._attendant = attendant
        self._ping = ping
        self._every_s = every_s
        self._failures: dict[str, int] = {}

    async def once(self) -> float:
        if self._attendant.session is None:
            return self._every_s
        nodes = [node.joined for node in (await self._store.nodes()).nodes]
        own = self._attendant.peer.name
        others = {node.name: node.address for node in nodes if node.name != own and node.address}
        answers = await asyncio.gather(*map(self._ping, others.values()))
        self._count(dict(zip(others, answers, strict=True)))
        await self._attendant.tell(unreachable=self._unreachable())
        return self._every_s

    def _count(self, answers: dict[str, bool]) -> None:
        for name, answered in answers.items():
            before = self._failures.get(name, 0)
            self._failures[name] = 0 if answered else before + 1
            if answered and before >= UNREACHABLE_AFTER:
                log.info("a node can be reached again", node=name)
            if self._failures[name] == UNREACHABLE_AFTER:
                log.warning("a node cannot be reached", node=name, attempts=UNREACHABLE_AFTER)
        self._failures = {name: self._failures[name] for name in answers}

    def _unreachable(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, count in self._failures.items() if count >= UNREACHABLE_AFTER))
