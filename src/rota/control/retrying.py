"""What all verbs share: the store, the coordinator, the clock, and a request that is repeated if its answer is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from rota.errors import CoordinatorUnavailable, StoreUnavailable
from rota.model.run import Run
from rota.model.states import RunState
from rota.ports import Clock, Coordinator, LogStore, Store

T = TypeVar("T")

TRIES = 5


class Retrying:
    """Sends requests to a store and a coordinator. All may be repeated, so one whose answer was lost is sent again."""

    def __init__(
        self, store: Store, clock: Clock, logs: LogStore | None = None, coordinator: Coordinator | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._logs = logs
        self._coordinator = coordinator

    async def as_seen(self, runs: Sequence[Run]) -> tuple[Run, ...]:
        """Return runs as people see them: a running one of which no item has started is shown as waiting."""
        ids = [run.id for run in runs if run.state is RunState.RUNNING]
        waiting = await self._again(lambda: self._store.unstarted(ids)) if ids else frozenset()
        return tuple(msgspec.structs.replace(run, state=RunState.WAITING) if run.id in waiting else run for run in runs)

    async def _again(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Call `ask`, and again up to `TRIES` times in all while there is no answer."""
        for attempt in range(TRIES - 1):
            try:
                return await ask()
            except StoreUnavailable:
                pass
            except CoordinatorUnavailable:
                if attempt:
                    raise  # the coordinator's client has itself waited for seconds
            await self._clock.sleep(0.1 * 2**attempt * (0.5 + self._clock.chance()))
        return await ask()
