"""An operator who changes, pauses and resumes jobs all the time and writes down what was asked and what was answered.

One who is `hasty` asks the store once, through whatever network there is, and is left with lost answers. An error that
says "nothing was changed" is taken at its word: the judge then wants no trace of that change. A patient one asks
through `Control` until there is an answer.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

from rota.control import Control
from rota.core.define import Apply, Pause, Resume
from rota.errors import CommitUnknown, StoreFault, StoreUnavailable
from rota.model.plan import Rule
from rota.ports import Clock, Store
from rota.transactions.change import change
from tests.checkers.changes import CHANGED, PAUSED, RESUMED, Asked
from tests.cluster.witness import Witness
from tests.cluster.workload import Wanted

PAUSED_MAX = 5


class Changer:
    """Changes its own jobs; nobody else does."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        witness: Witness,
        jobs: Sequence[Wanted],
        rng: random.Random,
        *,
        hasty: bool,
        may_be_damaged: bool = False,
    ) -> None:
        self._store = store
        self._control = Control(store, clock)
        self._witness = witness
        self._jobs = {it.name: it for it in jobs}
        self._paused: set[str] = set()
        self._rng = rng
        self._hasty = hasty
        self._may_be_damaged = may_be_damaged
        """Whether mutants write to the store: one may leave behind what the next change runs into."""
        self.asked: dict[str, list[Asked]] = {it.name: [] for it in jobs}
        self.counts: Counter[str] = Counter()

    async def run(self, stop: asyncio.Event, pause_s: float = 0.15) -> None:
        """Make changes until told to stop; the last one is finished."""
        while not stop.is_set():
            await self._change_one()
            await asyncio.sleep(self._rng.uniform(0, 2 * pause_s))

    async def _change_one(self) -> None:
        kind = self._rng.choice([CHANGED, CHANGED, PAUSED, RESUMED])
        if kind == RESUMED and not self._paused:
            return
        if kind == PAUSED and len(self._paused) >= PAUSED_MAX:
            kind = RESUMED
        names = {CHANGED: self._jobs.keys(), PAUSED: self._jobs.keys() - self._paused, RESUMED: self._paused}[kind]
        job = self._jobs[self._rng.choice(sorted(names))]
        await self._ask(kind, job.changed(self._rng) if kind == CHANGED else job)

    async def _ask(self, kind: str, job: Wanted) -> None:
        since = await self._witness.now()
        done: bool | None = True
        try:
            if self._hasty and self._rng.random() < 0.7:
                done = await self._once(kind, job)
            else:
                await self._until_answered(kind, job)
        except StoreFault:
            if not self._may_be_damaged:
                raise
            done = None
        self.counts[kind if done else "unknown" if done is None else "refused"] += 1
        if done is not False:
            rule = job.rule if kind == CHANGED else None
            self.asked[job.name].append(Asked(kind, since, await self._witness.now(), rule, sure=bool(done)))
            self._jobs[job.name] = job
        if done:
            {PAUSED: self._paused.add, RESUMED: self._paused.discard}.get(kind, id)(job.name)
        else:
            paused = await self._witness.is_paused(job.name)
            (self._paused.add if paused else self._paused.discard)(job.name)

    async def _once(self, kind: str, job: Wanted) -> bool | None:
        """Ask once: True if it was done, False if the store says that nothing was changed, None if nobody knows."""
        rules: dict[str, Rule] = {CHANGED: Apply(definitions=(job.definition,)), PAUSED: Pause(), RESUMED: Resume()}
        try:
            await self._store.transact(change, [job.definition.full_name], rules[kind])
        except CommitUnknown:
            return None
        except StoreUnavailable:
            return False
        return True

    async def _until_answered(self, kind: str, job: Wanted) -> None:
        while True:
            try:
                if kind == CHANGED:
                    await self._control.jobs.apply([job.definition])
                elif kind == PAUSED:
                    await self._control.jobs.pause([job.definition.full_name])
                else:
                    await self._control.jobs.resume([job.definition.full_name])
                return
            except StoreUnavailable:
                await asyncio.sleep(0.2)
