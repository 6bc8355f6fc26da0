"""Load what is needed to execute items. Assignments and versions of jobs never change, so they are remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from rota.core.attempt import assigned_attempt, assigned_spec, job_attempt, job_spec
from rota.core.notice import notices
from rota.model.dispatch import Grant, Granted, ItemEnd
from rota.model.job import Definition
from rota.model.run import Item, Loads, Run
from rota.model.work import Assignment, Attempt, ExecutionSpec, Queued, Retry, Work
from rota.ports import Store

K = TypeVar("K")
V = TypeVar("V")


class Policy(NamedTuple):
    """What says what becomes of an item, and whom to tell."""

    retry: Retry
    item: Item
    work: Work | None = None

    def notices(self, end: ItemEnd) -> list[Assignment]:
        """What the client of an assigned item wants to be told of its end."""
        return [] if self.work is None else notices(end, self.work, self.item.number, self.item.info)


class LoadedAttempts(NamedTuple):
    """Attempts, and what was granted but cannot be read by this release."""

    attempts: list[Attempt]
    unread: list[tuple[Granted, Grant]]


class Loader:
    """Turns grants into attempts."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._works: _Recent[int, Work] = _Recent(1000)
        self._definitions: _Recent[tuple[int, int], Definition] = _Recent(1000)
        self._specs: _Recent[tuple[int, str] | tuple[int, int, str], ExecutionSpec] = _Recent(1000)
        """By run and task for assignments, by job, version and task for jobs."""

    def forget(self) -> None:
        """The store lost its latest history: versions that were made in it are made anew, as something else."""
        self._works.clear()
        self._definitions.clear()
        self._specs.clear()

    async def attempts(self, grants: Sequence[Grant]) -> LoadedAttempts:
        """The attempts of these grants, in their order. Items that are gone are left out."""
        granted = [(it, grant) for grant in grants for it in grant.items]
        items, known = await self._load([it for it, _ in granted])
        unread = [(it, grant) for it, grant in granted if known.is_unread(it.run_id)]
        readable = [(it, grant) for it, grant in granted if not known.is_unread(it.run_id)] if unread else granted
        made = (self._attempt(it, grant, items.get(it.item_id), known) for it, grant in readable)
        return LoadedAttempts([attempt for attempt in made if attempt is not None], unread)

    def _attempt(self, granted: Granted, grant: Grant, item: Item | None, known: _Known) -> Attempt | None:
        if item is None:
            return None
        work = known.works.get(granted.run_id)
        if work is not None:
            of_work = (granted.run_id, item.task)
            spec = self._specs.get(of_work)
            if spec is None:
                spec = self._specs[of_work] = assigned_spec(work, item.task)
            return assigned_attempt(granted, grant, item, spec, work)
        run = known.runs.get(granted.run_id)
        if run is None:
            return None
        definition = known.definition(granted.run_id)
        of_version = (run.job_id, run.version, item.task)
        spec = self._specs.get(of_version)
        if spec is None:
            spec = self._specs[of_version] = job_spec(definition, item.task)
        return job_attempt(granted, grant, item, spec, run, definition)

    async def policies(self, queued: Sequence[Queued]) -> dict[int, Policy]:
        """What says what becomes of live items; of those that this release can read."""
        items, known = await self._load(queued)
        found: dict[int, Policy] = {}
        for it in queued:
            if known.is_unread(it.run_id):
                continue
            item, work = items.get(it.item_id), known.works.get(it.run_id)
            if item is not None and work is not None:
                found[it.item_id] = Policy(work.retry, item, work)
            elif item is not None and it.run_id in known.runs:
                found[it.item_id] = Policy(known.definition(it.run_id).task(item.task).retry, item)
        return found

    async def work_of(self, run_ids: set[int]) -> dict[int, Work]:
        """The assignments of those of the runs that are one."""
        works, missing = self._remembered(run_ids)
        found = await self._store.loads([], missing) if missing else Loads([], [])
        return (await self._known(works, found)).works

    async def _load(self, wanted: Sequence[Granted | Queued]) -> tuple[dict[int, Item], _Known]:
        """The items, and all that is needed of their runs."""
        works, missing = self._remembered({it.run_id for it in wanted})
        found = await self._store.loads([it.item_id for it in wanted], missing)
        return {item.id: item for item in found.items}, await self._known(works, found)

    def _remembered(self, run_ids: set[int]) -> tuple[dict[int, Work], list[int]]:
        """The assignments among these runs that are remembered, and the runs that must be read."""
        works = {run_id: work for run_id in run_ids if (work := self._works.get(run_id)) is not None}
        return works, [run_id for run_id in run_ids if run_id not in works]

    async def _known(self, works: dict[int, Work], found: Loads) -> _Known:
        """What was remembered and what was found, with the definitions that it needs. What is remembered for later is
        no part of the answer: a large batch may push it out."""
        runs = {run.id: run for run in found.runs}
        works |= {run.id: run.work for run in runs.values() if run.work is not None}
        versions = {(run.job_id, run.version) for run in runs.values() if run.work is None}
        definitions = {it: known for it in versions if (known := self._definitions.get(it)) is not None}
        unknown = [it for it in versions if it not in definitions]
        if unknown:
            definitions |= await self._store.definitions(unknown)
        for run_id, work in works.items():
            self._works[run_id] = work
        for version, definition in definitions.items():
            self._definitions[version] = definition
        return _Known(works, runs, definitions, found.unread)


class _Known(NamedTuple):
    works: dict[int, Work]
    runs: dict[int, Run]
    definitions: dict[tuple[int, int], Definition]
    unread: frozenset[int]

    def is_unread(self, run_id: int) -> bool:
        """Whether a run is there that this release cannot read, or the version of its job. Versions never go."""
        run = self.runs.get(run_id)
        no_version = run is not None and run.work is None and (run.job_id, run.version) not in self.definitions
        return run_id in self.unread or no_version

    def definition(self, run_id: int) -> Definition:
        run = self.runs[run_id]
        return self.definitions[run.job_id, run.version]


class _Recent(OrderedDict[K, V], Generic[K, V]):
    """A mapping that forgets what was put in first when it grows too large."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        if len(self) > self._size:
            self.popitem(last=False)
