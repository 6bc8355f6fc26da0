"""Inspect: each node asks the others, over HTTP, whether they live (S1.17, S1.18, S1.20).

    ask every other node      ──answers itself──> count 0
                              └─does not────────> count + 1 ──three in a row──> left out by the rounds of this node, and
                                                                                told under its session if it has one

The node is not given up for that: it is rescued when its lease has ended, whoever can reach it. Counts are this
observer's own (A1.5), and go on while the coordinator is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from rota.core.reach import checked, failures, is_answer_of, unreachable
from rota.logger import log
from rota.loops.loop import Loop
from rota.model.cluster import UNREACHABLE_AFTER
from rota.model.node import Node, PingAnswer, Place
from rota.ports import Clock, Store

Ping = Callable[[str], Awaitable[PingAnswer | None]]
OnChanged = Callable[[Sequence[Node]], Awaitable[None]]
Publish = Callable[[tuple[str, ...]], Awaitable[None]]


@dataclass(eq=False, repr=False)
class Inspector(Loop):
    """Looks after the other nodes of the cluster."""

    store: Store
    clock: Clock
    own: str
    ping: Ping
    every_s: float
    here: Callable[[], Place]
    on_changed: OnChanged
    publish: Publish | None = None
    _failed: dict[int, int] = field(default_factory=dict)
    _told: frozenset[int] = field(default_factory=frozenset)

    async def once(self) -> float:
        members = (await self.store.nodes()).nodes
        nodes = checked(members, self.own, self.here())
        answers = await asyncio.gather(*(self.ping(node.joined.address) for node in nodes))
        answered = {node.id: is_answer_of(node, it) for node, it in zip(nodes, answers, strict=True)}
        self._failed = failures(self._failed, answered)
        lost = [node for node in nodes if node.id in unreachable(self._failed)]
        self._say(nodes, dict(zip(answered, answers, strict=True)))
        if (now := frozenset(node.id for node in lost)) != self._told:
            await self.on_changed(lost)
            self._told = now  # only now: what was not told is told at the next check
        if self.publish is not None:
            await self.publish(tuple(sorted({node.joined.name for node in lost})))
        return self.every_s

    def _say(self, nodes: Sequence[Node], answers: dict[int, PingAnswer | None]) -> None:
        for node in nodes:
            name, address = node.joined.name, node.joined.address
            if self._failed[node.id] == UNREACHABLE_AFTER:
                answer = answers[node.id]
                who = "nobody" if answer is None else f"{answer.node} ({answer.id})"
                log.warning("node.unreachable", node=name, address=address, answers=who, attempts=UNREACHABLE_AFTER)
            elif node.id in self._told and not self._failed[node.id]:
                log.info("node.reachable", node=name, address=address)
