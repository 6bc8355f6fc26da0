"""What families of requests share: every request may be repeated, so one whose answer was lost is sent once more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast

from rota.errors import CoordinatorUnavailable, StoreUnavailable
from rota.ports import Clock, Store

S = TypeVar("S")
T = TypeVar("T")

TRIES = 5


class Family:
    """What may be asked of a store, and by which clock."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock


def patient(server: S, clock: Clock) -> S:
    """The same store or coordinator, for somebody who repeats each request up to `TRIES` times in all."""
    return cast("S", Patient(server, clock))


class Patient:
    """Whatever request there is, it is repeated while there is no answer."""

    def __init__(self, server: object, clock: Clock) -> None:
        self._server = server
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._server, name)
        if not iscoroutinefunction(found):
            return found

        async def asked(*args: Any, **kwargs: Any) -> Any:
            return await self._again(lambda: found(*args, **kwargs))

        return asked

    async def _again(self, ask: Callable[[], Awaitable[T]]) -> T:
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
