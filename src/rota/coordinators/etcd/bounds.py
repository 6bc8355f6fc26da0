"""Verbs take a bounded time, whatever the network does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from rota.errors import CoordinatorUnavailable

P = ParamSpec("P")
R = TypeVar("R")
VERB_S = 5.0
"""How long a verb may take in all."""


def bounded(verb: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Give a verb up after a while; what it has asked may have been done."""

    @wraps(verb)
    async def within(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            async with asyncio.timeout(VERB_S):
                return await verb(*args, **kwargs)
        except TimeoutError:
            raise CoordinatorUnavailable(f"etcd has not answered within {VERB_S:g} s") from None

    return within
