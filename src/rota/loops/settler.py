"""Settle: after the store lost its latest history, end what this node has in hand and the store does not know.

    the generation has risen ──> compare ──unknown──> kill ──seen gone──> tell the store
                                    └──────────all known──────────────────────^

Nothing is given to anybody until all nodes have settled, or a lease has passed; meanwhile the switches of this node are
not moved on. So what runs unknown to the store is gone before its seat, or the item itself, is given again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from rota.loops.executor import Executor
from rota.loops.in_hand import AttemptsInHand
from rota.loops.loader import Loader
from rota.model.work import Attempt, generation_of
from rota.ports import Runner, Store
from rota.transactions.members import settle

IN_HAND_MAX = 10_000

log = structlog.get_logger()


@dataclass(slots=True)
class Settler:
    """Ends what this node has in hand and the store does not know, step by step, then tells the store."""

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
