"""Prune: forget what is older, or more, than shall be kept, a little at a time; and close assignments that are done."""

from __future__ import annotations

import asyncio

from rota.config import RetentionConfig
from rota.loops.duty import Duty
from rota.loops.loop import Loop
from rota.model.standing import Retention
from rota.ports import Clock, LogStore, Store

BATCH = 200
CLOSE_BATCH = 50
CLOSE_S = 5.0
MORE_S = 0.02
"""A rest between two batches: others wait for the same processors."""


class Pruner(Loop):
    """One node prunes at a time. If two do, whoever comes second finds it done."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        config: RetentionConfig,
        logs: LogStore | None,
        *,
        duty: Duty | None = None,
    ) -> None:
        super().__init__(clock)
        self._duty = duty
        self._store = store
        self._config = config
        self._logs = logs
        self._wanted = Retention(age_s=config.days * 86400.0, runs_max=config.runs_max, history_s=config.days * 86400.0)
        self._next_s = 0.0
        self._looked_id = 0
        """The last run that was looked at, unless that was the last of all."""
        self.pruned = 0

    async def once(self) -> float:
        if self._duty is not None and not await self._duty.is_mine():
            return CLOSE_S
        closed = await self._store.close_runs(after_id=self._looked_id, limit=CLOSE_BATCH)
        self._looked_id = closed.last_id or 0
        if closed.last_id is not None:
            return MORE_S
        if self._clock.monotonic() >= self._next_s:
            if await self._prune():
                return MORE_S
            self._next_s = self._clock.monotonic() + self._config.every_s * (0.9 + 0.2 * self._clock.chance())
        return CLOSE_S * (0.9 + 0.2 * self._clock.chance())

    async def _prune(self) -> bool:
        """Forget one batch; says whether there may be more."""
        done = await self._store.prune(self._wanted, limit=BATCH)
        if self._logs is not None and done.run_ids:
            await asyncio.to_thread(self._logs.prune, done.run_ids)  # many files, perhaps far away
        self.pruned += len(done.run_ids)
        return len(done.run_ids) + done.rows >= BATCH
