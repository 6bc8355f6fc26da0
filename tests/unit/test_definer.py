"""The loop that keeps the store in step with files (S0.47)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rota.config import DefinitionsConfig
from rota.control import Control
from rota.control.jobs import sources_of
from rota.definitions.loaded import Loaded
from rota.errors import Problem, StoreUnavailable
from rota.loops.definer import Definer
from rota.model import tables
from rota.model.job import Definition
from rota.model.plan import JobFilter
from rota.sim.loop import SimClock, SimLoop, simulate
from rota.storage.memory import MemoryStore
from tests.factories import a_definition


class Files:
    """Files that a test changes; each load takes a while."""

    def __init__(self, clock: SimClock, *definitions: Definition, takes_s: float = 0.1) -> None:
        self._clock = clock
        self.definitions = list(definitions)
        self.problems: list[Problem] = []
        self.version = 0
        self.loads = 0
        self.takes_s = takes_s

    async def fingerprint(self) -> object:
        return self.version

    async def load(self) -> Loaded:
        self.loads += 1
        await self._clock.sleep(self.takes_s)
        return Loaded(tuple(self.definitions), tuple(self.problems))


CONFIG = DefinitionsConfig(path="jobs", watch_s=1, sweep_s=60)


def applying(control: Control) -> Any:
    async def apply(definitions: Sequence[Definition], loaded: Loaded) -> Any:
        return await control.jobs.apply(definitions, sources_of(loaded))

    return apply


def names(store: MemoryStore) -> set[str]:
    return {row.name for row in store.tables.rows(tables.JOB)}


def test_definitions_are_applied_at_start_on_change_and_in_a_sweep() -> None:
    async def main(loop: SimLoop) -> None:
        clock = SimClock(loop, 1)
        store, files = MemoryStore(clock, actor="test"), Files(clock, a_definition("first"))
        definer = Definer(files, applying(Control(store, clock)), clock, CONFIG)
        task = asyncio.create_task(definer.run())
        await clock.sleep(5)
        assert (names(store), files.loads) == ({"first"}, 1)
        files.definitions.append(a_definition("second"))
        files.version += 1
        await clock.sleep(3)
        assert (names(store), files.loads) == ({"first", "second"}, 2)
        files.definitions.append(a_definition("unnoticed"))
        await clock.sleep(61)
        assert names(store) == {"first", "second", "unnoticed"}
        assert all(job.revision == 1 for job in await store.jobs(JobFilter())), "applying again changed something"
        definer.stop()
        await task

    simulate(main, seed=1)


def test_a_store_that_was_away_gets_its_definitions_later() -> None:
    async def main(loop: SimLoop) -> None:
        clock = SimClock(loop, 1)
        store, files = MemoryStore(clock, actor="test"), Files(clock, a_definition("first"))
        away = True

        async def apply(definitions: Sequence[Definition], loaded: Loaded) -> Any:
            if away:
                raise StoreUnavailable("nobody answers")
            return await applying(Control(store, clock))(definitions, loaded)

        definer = Definer(files, apply, clock, CONFIG)
        task = asyncio.create_task(definer.run())
        await clock.sleep(20)
        assert names(store) == set()
        away = False
        await clock.sleep(5)
        assert names(store) == {"first"}
        definer.stop()
        await task

    simulate(main, seed=1)


def test_a_stop_does_not_wait_for_a_slow_file() -> None:
    async def main(loop: SimLoop) -> float:
        clock = SimClock(loop, 1)
        files = Files(clock, a_definition("first"), takes_s=1000)
        definer = Definer(files, applying(Control(MemoryStore(clock, actor="test"), clock)), clock, CONFIG)
        task = asyncio.create_task(definer.run())
        await clock.sleep(5)
        definer.stop()
        await task
        return clock.monotonic()

    assert simulate(main, seed=1) == 5
