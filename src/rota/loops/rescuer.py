"""Rescue: put back the items of nodes that are gone, and end what was to be finished from outside and was not.

A node counts as gone when its lease and a margin have passed by the store's clock *and* this rescuer has seen no
renewal for as long by its own; an item with `hold_s` so much later. Of a lease that a clock set back has put out of
reach, only the second is asked. A predecessor on this very host whose processes
are seen gone is not waited for.

Rescue and expiry are a duty of one node at a time (S1.11). The others do the same half a lease later: whoever has the
duty may hang, and a duty is no reason to lose work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import structlog

from rota.config import LeaseConfig
from rota.core.advance import Advance
from rota.core.notice import notices
from rota.core.retry import Next, after
from rota.errors import StoreUnavailable
from rota.loops.duty import Duty
from rota.loops.identity import Identity
from rota.loops.live import Live
from rota.loops.loader import Loader, Policy
from rota.loops.loop import Loop
from rota.model.dispatch import ItemEnd
from rota.model.moment import micros
from rota.model.node import Node
from rota.model.states import Outcome
from rota.model.work import Assignment, Queued, Retry
from rota.ports import Clock, Crew, Store

LOOK_S = 0.5
SOON_S = 0.1
"""How often to look when a node has not renewed its lease for nearly as long as it lasts."""
EXPIRE_S = 1.0
OVERDUE_SHARE = 0.5
"""How much of a lease the others wait longer than the one whose duty it is."""
RECONCILE_S = 15.0
LEFT_S = 15.0
"""How soon to look again after a node of which nothing could be rescued, and which was not given up all the same."""

log = structlog.get_logger()


class Rescuer(Loop):
    """Looks after the work of others. Every node may do so: whoever comes second finds it done."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        config: LeaseConfig,
        identity: Identity,
        crew: Crew | None,
        loader: Loader,
        live: Live | None = None,
        *,
        duty: Duty | None = None,
    ) -> None:
        super().__init__(clock)
        self._duty = duty
        self._store = store
        self._config = config
        self._identity = identity
        self._crew = crew
        self._loader = loader
        self._seen: dict[int, tuple[int, float]] = {}
        """The last renewal seen of each node, and when it was first seen, by the monotonic clock."""
        self._live = live
        self._unknown: set[tuple[int, int]] = set()
        self._reconciled_s = clock.monotonic()
        self._expired_s = 0.0
        self._troubled: set[int] = set()
        """Nodes whose rescue has failed, which is told once."""
        self._left: dict[int, float] = {}
        """Nodes of which there was nothing to rescue, and when that was."""
        self.rescued = 0

    async def once(self) -> float:
        members = await self._store.nodes()
        self._watch(members.nodes)
        is_mine = self._duty is None or await self._duty.is_mine()
        patience_s = 0.0 if is_mine else OVERDUE_SHARE * self._config.lease_s
        for node in members.nodes:
            if node.id != self._identity.id:
                await self._look_after(node, members.now, patience_s)
        if self._clock.monotonic() - self._expired_s >= EXPIRE_S + patience_s:
            self._expired_s = self._clock.monotonic()
            await self._expire()
        if self._clock.monotonic() - self._reconciled_s >= RECONCILE_S:
            self._reconciled_s = self._clock.monotonic()
            await self._reconcile()
        look_s = SOON_S if self._is_anxious() else LOOK_S
        return look_s * (0.9 + 0.2 * self._clock.chance())

    async def _reconcile(self) -> None:
        """Give back items that the store says this node has and it does not know of, seen twice: a net under all that
        could go wrong between a grant and its attempt."""
        if self._live is None or self._identity.id is None:
            return
        mine = await self._store.queued(node_id=self._identity.id, limit=10_000)
        strange = [it for it in mine if it.item_id not in self._live.attempts]
        again = [it for it in strange if (it.item_id, it.attempt) in self._unknown]
        self._unknown = {(it.item_id, it.attempt) for it in strange}
        if again:
            log.error("items of this node that it does not know go back", items=[it.item_id for it in again][:20])
            policies = await self._loader.policies(again)
            again = [it for it in again if it.item_id not in self._live.attempts]
            self._live.give_back((it.item_id, it.attempt) for it in again)
            ends = [_lost(it, self._identity.name, policies, free=True) for it in again]
            await self._store.finish(ends, rule=Advance())

    def _is_anxious(self) -> bool:
        now_s = self._clock.monotonic()
        others = (at_s for node_id, (_, at_s) in self._seen.items() if node_id != self._identity.id)
        return any(now_s - at_s >= self._config.lease_s - self._config.margin_s for at_s in others)

    def _watch(self, nodes: Sequence[Node]) -> None:
        now_s = self._clock.monotonic()
        known = self._seen
        self._seen = {
            node.id: known[node.id] if known.get(node.id, (None,))[0] == node.beat else (node.beat, now_s)
            for node in nodes
        }
        self._left = {node_id: at_s for node_id, at_s in self._left.items() if node_id in self._seen}

    def _is_over(self, node: Node, now: datetime, hold_s: float) -> bool:
        assert node.lease_until is not None
        wait_s = self._config.margin_s + hold_s
        lease_s = max(self._config.lease_s, node.joined.lease_s)
        unseen_s = self._clock.monotonic() - self._seen[node.id][1]
        is_void = node.joined.is_void(micros(node.lease_until), micros(now))
        return (is_void or now > node.lease_until + timedelta(seconds=wait_s)) and unseen_s >= lease_s + wait_s

    async def _look_after(self, node: Node, now: datetime, patience_s: float) -> None:
        """Each on its own: whatever is wrong with one, the others are rescued."""
        try:
            if self._crew is not None and self._crew.gone(node.joined.place):
                await self._rescue(node, now, seen_gone=True)
            elif node.lease_until is not None and self._is_over(node, now, patience_s):
                await self._rescue(node, now, seen_gone=False)
        except StoreUnavailable:
            raise
        except Exception:
            if node.id not in self._troubled:
                self._troubled.add(node.id)
                log.exception("a node cannot be rescued from here", node=node.joined.name)

    async def _rescue(self, node: Node, now: datetime, *, seen_gone: bool) -> None:
        queued = await self._store.queued(node_id=node.id, limit=10_000)
        taken = [it for it in queued if seen_gone or self._is_over(node, now, it.hold_s)]
        if (queued and not taken) or (not queued and self._is_left(node)):
            return
        policies = await self._loader.policies(taken)
        ends = [_lost(it, node.joined.name, policies, free=seen_gone and it.started_at is None) for it in taken]
        done = await self._store.rescue(
            node.id,
            node.beat,
            ends,
            rule=Advance(),
            notices={it: self._notices(end, policies[it]) for end in ends if (it := end.item_id) in policies},
            margin_s=self._config.margin_s,
            seen_gone=seen_gone,
        )
        is_new = node.id not in self._left
        if done and not ends:
            self._left[node.id] = self._clock.monotonic()
        if done and (ends or is_new):
            self.rescued += len(ends)
            log.warning("a node is gone", node=node.joined.name, items=len(ends), seen_gone=seen_gone)

    def _is_left(self, node: Node) -> bool:
        """Whether all that is left of a node are items that this release cannot read: newer nodes rescue them."""
        return self._clock.monotonic() - self._left.get(node.id, -LEFT_S) < LEFT_S

    async def _expire(self) -> None:
        """End what its client did not finish in time."""
        expired = await self._store.queued(expired=True)
        if not expired:
            return
        policies = await self._loader.policies(expired)
        ends = [
            _expired(it, policies[it.item_id].retry, self._clock.chance()) for it in expired if it.item_id in policies
        ]  # what this release cannot read is left to others
        told = {end.item_id: self._notices(end, policies[end.item_id]) for end in ends}
        await self._store.finish(ends, rule=Advance(), notices=told)

    def _notices(self, end: ItemEnd, policy: Policy) -> list[Assignment]:
        if policy.work is None:
            return []
        return notices(end, policy.work, policy.item.number, policy.item.info)


def _lost(item: Queued, node: str, policies: Mapping[int, Policy], *, free: bool) -> ItemEnd:
    """`free`: the attempt had not begun, so that the loss costs nothing. An item that this release cannot read is ready
    again, however often it was lost: who can read it decides."""
    policy = policies.get(item.item_id)
    losses = -1 if free else item.losses
    retry = Retry(lost_max=item.losses + 2) if policy is None else policy.retry
    following = after(Outcome.LOST, "", failures=item.failures, losses=losses, retry=retry, chance=0.0)
    return _end(item, Outcome.LOST, following, f"its node {node} was lost", node=node)


def _expired(item: Queued, retry: Retry, chance: float) -> ItemEnd:
    following = after(
        Outcome.TIMED_OUT, "timeout", failures=item.failures, losses=item.losses, retry=retry, chance=chance
    )
    return _end(item, Outcome.TIMED_OUT, following, "its client did not finish it in time", expires_at=item.expires_at)


def _end(
    item: Queued, outcome: Outcome, following: Next, message: str, *, node: str = "", expires_at: datetime | None = None
) -> ItemEnd:
    return ItemEnd(
        item_id=item.item_id,
        attempt=item.attempt,
        run_id=item.run_id,
        job_id=item.job_id,
        lane_id=item.lane_id,
        outcome=outcome,
        state=following.state,
        delay_s=following.delay_s,
        failures=following.failures,
        losses=following.losses,
        node=node,
        node_id=item.node_id,
        round=item.round,
        assigned_us=None if item.assigned_at is None else micros(item.assigned_at),
        started_us=None if item.started_at is None else micros(item.started_at),
        message=following.message or message,
        expired_us=None if expires_at is None else micros(expires_at),
    )
