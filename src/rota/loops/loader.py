"""Load what is needed to execute items. Assignments and versions of jobs never change, so they are remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from rota.core.attempt import assigned_attempt, job_attempt
from rota.model.dispatch import Grant, Granted
from rota.model.job import Definition
from rota.model.run import Item, Run
from rota.model.work import Attempt, Queued, Retry, Work
from rota.ports import Store

K = TypeVar("K")
V = TypeVar("V")


class Policy(NamedTuple):
    """What says what becomes of an item, and whom to tell."""

    retry: Retry
    item: Item
    work: Work | None = None


class Loader:
    """Turns grants into attempts."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._works: _Recent[int, Work] = _Recent(1000)
        self._definitions: _Recent[tuple[int, int], Definition] = _Recent(1000)

    async def attempts(self, grants: Sequence[Grant], generation: int) -> list[Attempt]:
        """The attempts of these grants, in their order. Items that are gone are left out."""
        granted = [(it, grant) for grant in grants for it in grant.items]
        items = {item.id: item for item in await self._store.loads([it.item_id for it, _ in granted])}
        runs = await self._runs({it.run_id: it.job_id for it, _ in granted})
        made = (self._attempt(it, grant, items.get(it.item_id), runs, generation) for it, grant in granted)
        return [attempt for attempt in made if attempt is not None]

    def work_of(self, run_id: int) -> Work | None:
        """The assignment of a run whose items were loaded, if it is one and is remembered."""
        return self._works.get(run_id)

    async def policies(self, queued: Sequence[Queued]) -> dict[int, Policy]:
        """What says what becomes of live items."""
        items = {item.id: item for item in await self._store.loads([it.item_id for it in queued])}
        runs = await self._runs({it.run_id: it.job_id for it in queued})
        found: dict[int, Policy] = {}
        for it in queued:
            item, work, run = items.get(it.item_id), self._works.get(it.run_id), runs.get(it.run_id)
            if item is not None and work is not None:
                found[it.item_id] = Policy(work.retry, item, work)
            elif item is not None and run is not None:
                task = self._definitions[run.job_id, run.version].task(item.task)
                found[it.item_id] = Policy(task.retry, item)
        return found

    def _attempt(
        self, granted: Granted, grant: Grant, item: Item | None, runs: dict[int, Run], generation: int
    ) -> Attempt | None:
        if item is None:
            return None
        work = self._works.get(granted.run_id)
        if work is not None:
            return assigned_attempt(granted, grant.at_us, grant.round, item, work, generation)
        run = runs.get(granted.run_id)
        if run is None:
            return None
        definition = self._definitions[run.job_id, run.version]
        return job_attempt(granted, grant.at_us, grant.round, item, run, definition, generation)

    async def _runs(self, wanted: dict[int, int]) -> dict[int, Run]:
        """Load the runs (id to job) that are not remembered, and the definitions of theirs that are not."""
        missing = [run_id for run_id in wanted if run_id not in self._works]
        runs = {run.id: run for run in await self._store.runs_of(missing)} if missing else {}
        for run in runs.values():
            if run.work is not None:
                self._works[run.id] = run.work
        versions = {(run.job_id, run.version) for run in runs.values() if run.work is None}
        unknown = [version for version in versions if version not in self._definitions]
        if unknown:
            for version, definition in (await self._store.definitions(unknown)).items():
                self._definitions[version] = definition
        return runs


class _Recent(OrderedDict[K, V], Generic[K, V]):
    """A mapping that forgets what was put in first when it grows too large."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        if len(self) > self._size:
            self.popitem(last=False)
