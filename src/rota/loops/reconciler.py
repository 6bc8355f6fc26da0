"""Reconcile: give back items that the store says this node has, and the node does not know of.

A net under all that could go wrong between a grant and its attempt. An item must be unknown at two looks in a row: one
that was just given is about to begin.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.core.advance import Advance
from rota.core.rescue import lost
from rota.logger import log
from rota.loops.executor import Executor
from rota.loops.in_hand import AttemptsInHand
from rota.loops.loader import Loader
from rota.loops.loop import Loop
from rota.loops.member import Identity
from rota.model.work import Attempt, generation_of
from rota.ports import Clock, Runner, Store
from rota.transactions.finish import finish
from rota.transactions.members import settle

LOOK_S = 15.0

IN_HAND_MAX = 10_000


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
        mine = await self._store.queued(node_id=node_id, limit=IN_HAND_MAX)
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


@dataclass(slots=True)
class Settler:
    """After the store lost its latest history: ends what this node has in hand and the store does not know, step by
    step, then tells the store.

        the generation has risen ──> compare ──unknown──> kill ──seen gone──> tell the store
                                        └──────────all known──────────────────────^

    Nothing is given to anybody until all nodes have settled, or a lease has passed; meanwhile the switches of this node
    are not moved on. So what runs unknown to the store is gone before its seat, or the item itself, is given again.
    """

    store: Store
    in_hand: AttemptsInHand
    loader: Loader
    executor: Executor | None
    runner: Runner | None
    _ended: dict[tuple[int, int], None] = field(default_factory=dict)

    async def settled(self, node_id: int, generation: int) -> bool:
        """Do the next step; says whether it was the last."""
        queued = await self.store.queued(node_id=node_id, limit=IN_HAND_MAX)
        if self.executor is not None and self.executor.is_beginning:
            return False  # what was given before is taken in hand first
        known = {(it.item_id, it.attempt, it.round) for it in queued}
        former = [it for it in self.in_hand.attempts.values() if generation_of(it.round) < generation]
        if self._drop([it for it in former if (it.item_id, it.attempt, it.round) not in known]):
            return False
        self.loader.forget()
        await self.store.transact(settle, node_id, list(self._ended))
        if self._ended:
            named = list(self._ended)[:100]
            log.error("store.forgot_attempts", count=len(self._ended), begun=named)
        self._ended = {}
        return True

    def _drop(self, unknown: list[Attempt]) -> bool:
        """Kill them. Returns whether some are not gone yet."""
        numbers = {(it.item_id, it.token): (it.item_id, it.attempt) for it in unknown}
        left = self.runner.drop(list(numbers)) if self.runner is not None and numbers else []
        self._ended |= dict.fromkeys(numbers[it] for it in left)
        return bool(left)
