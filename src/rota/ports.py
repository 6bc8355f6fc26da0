"""What the product needs from the world: a durable store and a clock. The contracts are the docstrings.

Every verb of the store may be repeated after `StoreUnavailable` or `CommitUnknown`: what was already done is found
done. Verbs that decide are shaped *locked read -> pure decision -> fenced write*; the rule they are given may be
called more than once, because a transaction that lost a race is rolled back and made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from rota.model.job import Job, JobName
from rota.model.plan import Committed, JobFilter, Rule, RunFilter, Upcoming
from rota.model.run import Event, Item, Run


class Clock(Protocol):
    """Time and chance. Nothing else in the product reads either."""

    def monotonic(self) -> float:
        """Seconds that only rise; for durations."""
        ...

    def wall(self) -> datetime:
        """This host's idea of UTC. Only embedded stores, which have no clock of their own, may decide by it."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let others work for so long."""
        ...

    def chance(self) -> float:
        """A random number in [0, 1)."""
        ...

    def token(self) -> str:
        """A random name that nobody else has."""
        ...


class Store(Protocol):
    """The durable truth."""

    async def migrate(self) -> None:
        """Bring the schema up to this release; safe when several nodes do it at once. Refuses a newer schema."""
        ...

    async def check(self) -> None:
        """Raise `StoreRefused` if this store would lose what it acknowledged, or has another release's schema."""
        ...

    async def close(self) -> None:
        """Let go of every connection."""
        ...

    async def now(self) -> datetime:
        """The store's clock: the only one that decides."""
        ...

    async def upcoming(self, *, within_s: float, limit: int) -> Upcoming:
        """The enabled jobs that are due by now + `within_s`, earliest first. Not locked: a hint for the caller."""
        ...

    async def fire(self, job_ids: Sequence[int], rule: Rule) -> Committed:
        """Lock those of the jobs that nobody else holds, let the rule decide on them, commit its plan.

        Jobs held by another transaction are left out of the facts instead of being waited for.
        """
        ...

    async def change(
        self,
        names: Sequence[JobName],
        rule: Rule,
        *,
        known: Sequence[tuple[JobName, str]] = (),
        waiting: bool = False,
    ) -> Committed:
        """Lock the jobs of these names that exist (deleted ones too), waiting for them; decide; commit.

        `known` names manual runs (job and idempotency key) that the facts shall show if they exist already. With
        `waiting`, the overlap keys under which runs of these jobs wait are locked and shown too.
        """
        ...

    async def end(self, run_ids: Sequence[int], rule: Rule) -> Committed:
        """Lock the jobs and overlap keys of these runs, then read the runs; decide; commit."""
        ...

    async def named(self, names: Sequence[JobName]) -> tuple[Job, ...]:
        """Those of the named jobs that exist, deleted ones too, in order of their creation."""
        ...

    async def jobs(self, wanted: JobFilter) -> tuple[Job, ...]:
        """A page of jobs."""
        ...

    async def run(self, run_id: int) -> Run | None:
        """One run."""
        ...

    async def runs(self, wanted: RunFilter) -> tuple[Run, ...]:
        """A page of runs."""
        ...

    async def items(self, run_id: int) -> tuple[Item, ...]:
        """The items of a run, by task and index."""
        ...

    async def events(
        self, *, run_id: int | None = None, job_id: int | None = None, limit: int = 100
    ) -> tuple[Event, ...]:
        """The newest lines of the history of a run or a job, oldest first."""
        ...
