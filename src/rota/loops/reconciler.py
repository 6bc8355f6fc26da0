"""Reconcile: give back items that the store says this node has, and the node does not know of.

A net under all that could go wrong between a grant and its attempt. An item must be unknown at two looks in a row: one
that was just given is about to begin.
"""

from __future__ import annotations

import structlog

from rota.core.advance import Advance
from rota.core.rescue import lost
from rota.loops.identity import Identity
from rota.loops.in_hand import AttemptsInHand
from rota.loops.loader import Loader
from rota.loops.loop import Loop
from rota.ports import Clock, Store
from rota.transactions.finish import finish

LOOK_S = 15.0

log = structlog.get_logger()


class Reconciler(Loop):
    """Compares the attempts in hand with what the store says."""

    def __init__(self, store: Store, clock: Clock, identity: Identity, in_hand: AttemptsInHand, loader: Loader) -> None:
        super().__init__(clock)
        self._store = store
        self._identity = identity
        self._in_hand = in_hand
        self._loader = loader
        self._unknown: set[tuple[int, int]] = set()

    async def once(self) -> float:
        if self._identity.id is not None:
            await self._reconcile(self._identity.id)
        return LOOK_S

    async def _reconcile(self, node_id: int) -> None:
        mine = await self._store.queued(node_id=node_id, limit=10_000)
        strange = [it for it in mine if it.item_id not in self._in_hand.attempts]
        again = [it for it in strange if (it.item_id, it.attempt) in self._unknown]
        self._unknown = {(it.item_id, it.attempt) for it in strange}
        if not again:
            return
        log.error("item.given_back", items=[it.item_id for it in again][:20])
        policies = await self._loader.policies(again)
        retries = {item_id: policy.retry for item_id, policy in policies.items()}
        again = [it for it in again if it.item_id not in self._in_hand.attempts]
        self._in_hand.give_back((it.item_id, it.attempt) for it in again)
        ends = [lost(it, self._identity.name, retries.get(it.item_id), free=True) for it in again]
        await finish(self._store, ends, rule=Advance())
