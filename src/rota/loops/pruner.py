"""Prune: forget what is older, or more, than shall be kept, a little at a time; and close assignments that are done.

One node at a time does so. The output of forgotten runs is on the hosts that ran them: each node removes its own.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rota.config import RetentionConfig
from rota.core.advance import Advance
from rota.loops.duty import Duty
from rota.loops.loop import Loop
from rota.model.standing import Retention
from rota.ports import Clock, LogStore, Store
from rota.transactions.assign import close_runs
from rota.transactions.finish import settle_runs
from rota.transactions.prune import prune

BATCH = 200
OUTPUT_BATCH = 1000
CLOSE_BATCH = 50
CLOSE_S = 5.0
QUIET_TIMES = 5.0
"""How many times as long as usual nothing is pruned while there is no news: little gets old by itself."""
MORE_S = 0.02
"""A rest between two batches: others wait for the same processors."""


@dataclass(eq=False, repr=False)
class Pruner(Loop):
    """One node prunes at a time. If two do, whoever comes second finds it done."""

    store: Store
    clock: Clock
    config: RetentionConfig
    logs: LogStore | None
    duty: Duty | None = None
    _next_s: float = 0.0
    _looked_id: int = 0
    """The last run that was looked at, unless that was the last of all."""
    _settle_s: float = 0.0
    _settled_id: int = 0
    """The same, of the runs of jobs that another node could not settle."""
    _output_s: float = 0.0
    _output_id: int = 0
    """The last run whose output was looked at, unless that was the last of all."""
    pruned: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        age_s = self.config.days * 86400.0
        self._wanted = Retention(age_s=age_s, runs_max=self.config.runs_max, history_s=age_s)

    async def once(self) -> float:
        if self.logs is not None and self.clock.monotonic() >= self._output_s:
            await self._prune_output(self.logs)
        if self.duty is not None and not await self.duty.is_mine():
            return CLOSE_S
        closed = await close_runs(self.store, after_id=self._looked_id, limit=CLOSE_BATCH)
        self._looked_id = closed.last_id or 0
        if closed.last_id is not None:
            return MORE_S
        if self.clock.monotonic() >= self._settle_s:
            await self._settle()
        if self.clock.monotonic() >= self._next_s:
            if await self._prune():
                return MORE_S
            self._next_s = self._later_s()
        return CLOSE_S * (0.9 + 0.2 * self.clock.chance())

    async def _settle(self) -> None:
        """Settle runs of jobs that others could not: seldom, for all jobs are asked for their live runs."""
        settled = await settle_runs(self.store, Advance(), after_id=self._settled_id, limit=CLOSE_BATCH)
        self._settled_id = settled.last_id or 0
        if settled.last_id is None:
            self._settle_s = self._later_s()

    async def _prune_output(self, logs: LogStore) -> None:
        """Look at some of the output that this host has: whoever forgot its runs may be on another one."""
        found = await asyncio.to_thread(logs.runs, self._output_id, OUTPUT_BATCH)
        gone = await self.store.forgotten(found) if found else ()
        await asyncio.to_thread(logs.prune, gone)
        self._output_id = found[-1] if len(found) == OUTPUT_BATCH else 0
        if not self._output_id:
            self._output_s = self._later_s()

    def _later_s(self) -> float:
        every_s = self.config.every_s
        usual = self.quietly(every_s) == every_s
        return self.clock.monotonic() + every_s * (1 if usual else QUIET_TIMES) * (0.9 + 0.2 * self.clock.chance())

    async def _prune(self) -> bool:
        """Forget one batch; says whether there may be more."""
        done = await self.store.transact(prune, self._wanted, limit=BATCH)
        if self.logs is not None and done.run_ids:
            await asyncio.to_thread(self.logs.prune, done.run_ids)  # many files, perhaps far away
        self.pruned += len(done.run_ids)
        return len(done.run_ids) + done.rows >= BATCH
