"""Rescue: put back the items of nodes that are gone.

    look at all nodes ──lease over, or processes seen gone──> read what it has ──> one transaction: end the attempts

When a node is gone is decided in `core/lease`, what becomes of its items in `core/rescue`. Rescue is a duty of one node
at a time (S1.11). The others do the same half a lease later: whoever has the duty may hang, and a duty is no reason to
lose work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from rota.config import LeaseConfig
from rota.core.advance import Advance
from rota.core.lease import LeaseLook, Renewal, is_over, renewals
from rota.core.rescue import lost, rescued
from rota.errors import StoreUnavailable
from rota.logger import log
from rota.loops.duty import Duty
from rota.loops.loader import Loader
from rota.loops.loop import Loop
from rota.loops.member import Identity
from rota.model.node import Node
from rota.ports import Clock, Runner, Store
from rota.transactions.rescue import rescue

WATCH_S = 0.5
"""How often to look whether processes of this host are there, without asking the store."""
LOOK_SHARE = 0.5
"""How much of a lease passes between two looks while all nodes renew theirs. How old a renewal is a look tells, so that
none is needed just to see it soon."""
ALONE_S = 30.0
"""How often to look for other nodes where there are none, and their coming would be told."""
SOON_S = 0.1
"""How often to look when a node has not renewed its lease for nearly as long as it lasts."""
OVERDUE_SHARE = 0.5
"""How much of a lease the others wait longer than the one whose duty it is."""
LEFT_S = 15.0
"""How soon to look again after a node of which nothing could be rescued, and which was not given up all the same."""


@dataclass(eq=False, repr=False)
class Rescuer(Loop):
    """Rescues the work of other nodes. Every node may do so: whoever comes second finds it done. With a `pace` above 1
    it looks so much less often."""

    store: Store
    clock: Clock
    config: LeaseConfig
    identity: Identity
    runner: Runner | None
    loader: Loader
    duty: Duty | None = None
    pace: float = 1.0
    is_told: bool = False
    """Whether nodes that come are told of (`stir`)."""
    _seen: dict[int, Renewal] = field(default_factory=dict)
    _last: LeaseLook | None = None
    _others: tuple[Node, ...] = ()
    _look_at_s: float = 0.0
    _troubled: set[int] = field(default_factory=set)
    """Nodes whose rescue has failed, which is told once."""
    _left: dict[int, float] = field(default_factory=dict)
    """Nodes of which there was nothing to rescue, and when that was."""
    rescued: int = 0
    """Items that this node has rescued."""

    def stir(self) -> None:
        """A node may have come, of which nothing is known yet."""
        super().stir()
        soon_s = self.clock.monotonic() + self.pace * WATCH_S
        if self._look_at_s > soon_s:
            self._look_at_s = soon_s
            self.wake()

    async def once(self) -> float:
        if self.clock.monotonic() >= self._look_at_s or self._sees_one_gone():
            await self._look()
        wait_s = max(self._look_at_s - self.clock.monotonic(), 0.0)
        watches = self.runner is not None and self._others
        step_s = self.pace * WATCH_S * (0.9 + 0.2 * self.clock.chance())
        return min(wait_s, step_s) if watches or not self.is_told else wait_s

    def _sees_one_gone(self) -> bool:
        """Processes of this host are watched without asking the store."""
        runner = self.runner
        return runner is not None and any(runner.gone(it.joined.place) for it in self._others)

    async def _look(self) -> None:
        asked_s = self.clock.monotonic()
        members = await self.store.nodes()
        look = LeaseLook(members.now, asked_s, self.clock.monotonic())
        self._seen = renewals(self._seen, members.nodes, look, self._last)
        self._last = look
        self._left = {node_id: at_s for node_id, at_s in self._left.items() if node_id in self._seen}
        is_mine = self.duty is None or await self.duty.is_mine()
        patience_s = 0.0 if is_mine else OVERDUE_SHARE * self.config.lease_s
        for node in members.nodes:
            if node.id != self.identity.id:
                await self._look_after(node, members.now, patience_s)
        self._others = tuple(it for it in members.nodes if it.id != self.identity.id)
        self._look_at_s = self.clock.monotonic() + self._rest_s()

    def _rest_s(self) -> float:
        """Until a node would be nearly over that renews its lease no more: from then on every moment counts."""
        if self.is_told and not self._others:
            return self.pace * ALONE_S
        unseen_s = max((self._unseen_s(it.id) for it in self._others), default=0.0)
        left_s = self.config.lease_s - self.config.margin_s - unseen_s
        return max(min(left_s, self.pace * LOOK_SHARE * self.config.lease_s), self.pace * SOON_S)

    def _unseen_s(self, node_id: int) -> float:
        return self.clock.monotonic() - self._seen[node_id].at_s

    def _is_over(self, node: Node, now: datetime, hold_s: float) -> bool:
        wait_s = self.config.margin_s + hold_s
        return is_over(node, now, self._unseen_s(node.id), lease_s=self.config.lease_s, wait_s=wait_s)

    async def _look_after(self, node: Node, now: datetime, patience_s: float) -> None:
        """Each on its own: whatever is wrong with one, the others are rescued."""
        try:
            if self.runner is not None and self.runner.gone(node.joined.place):
                await self._rescue(node, now, seen_gone=True)
            elif node.lease_until is not None and self._is_over(node, now, patience_s):
                await self._rescue(node, now, seen_gone=False)
        except StoreUnavailable:
            raise
        except Exception:
            if node.id not in self._troubled:
                self._troubled.add(node.id)
                log.exception("node.rescue_failed", node=node.joined.name)

    async def _rescue(self, node: Node, now: datetime, *, seen_gone: bool) -> None:
        queued = await self.store.queued(node_id=node.id, limit=10_000)
        taken = rescued(queued, lambda hold_s: self._is_over(node, now, hold_s), seen_gone=seen_gone)
        if (queued and not taken) or (not queued and self._is_left(node)):
            return
        policies = await self.loader.policies(taken)
        retries = {item_id: policy.retry for item_id, policy in policies.items()}
        name = node.joined.name
        ends = [lost(it, name, retries.get(it.item_id), free=seen_gone and it.started_at is None) for it in taken]
        done = await self.store.transact(
            rescue,
            node.id,
            node.beat,
            ends,
            rule=Advance(),
            notices={it: policies[it].notices(end) for end in ends if (it := end.item_id) in policies},
            margin_s=self.config.margin_s,
            seen_gone=seen_gone,
        )
        is_new = node.id not in self._left
        if done and not ends:
            self._left[node.id] = self.clock.monotonic()
        if done and (ends or is_new):
            self.rescued += len(ends)
            log.warning("node.gone", node=name, items=len(ends), seen_gone=seen_gone)

    def _is_left(self, node: Node) -> bool:
        """Whether all that is left of a node are items that this release cannot read: newer nodes rescue them."""
        return self.clock.monotonic() - self._left.get(node.id, -LEFT_S) < LEFT_S
