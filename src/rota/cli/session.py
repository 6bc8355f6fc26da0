"""From the global options to an open store."""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from rota.cli.lazy import globals_of
from rota.errors import StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from rota.config import Config, Sourced
    from rota.control import Control
    from rota.ports import Clock, Store

T = TypeVar("T")


class Session(NamedTuple):
    """What a command works with."""

    config: Config
    clock: Clock
    store: Store
    control: Control


def settings(ctx: click.Context, flags: Mapping[str, object] | None = None) -> dict[str, Sourced]:
    """Every setting, from its strongest source."""
    from rota.config import load

    given = globals_of(ctx)
    return load({"store.url": given.store, **(flags or {})}, file=given.config)


def configuration(ctx: click.Context, flags: Mapping[str, object] | None = None) -> Config:
    from rota.config import config_of

    return config_of(settings(ctx, flags))


@asynccontextmanager
async def opened(config: Config, *, actor: str) -> AsyncIterator[Session]:
    """A session on the configured store. Nothing is sent to it yet."""
    from rota.control import Control
    from rota.wiring import log_store, open_store, system_clock

    logging.getLogger("asyncmy").setLevel(logging.ERROR)  # it repeats every note of the server as a warning
    clock = system_clock()
    if config.store.url == "memory:" and not config.store.may_forget:
        raise StoreRefused("memory: forgets everything when the process ends; use sqlite:///rota.db")
    try:
        store = open_store(config.store.url, clock, actor=actor, may_forget=config.store.may_forget)
    except OSError as error:
        raise StoreUnavailable(f"the store cannot be opened: {error}") from None
    try:
        yield Session(config, clock, store, Control(store, clock, log_store(config)))
    finally:
        await store.close()


def ask(ctx: click.Context, work: Callable[[Session], Awaitable[T]]) -> T:
    """Do something with a store that is there and fit for use."""
    config = configuration(ctx)
    refuse_missing_file(config.store.url)

    async def asked() -> T:
        async with opened(config, actor=person()) as session:
            await session.store.check()
            return await work(session)

    return asyncio.run(asked())


def refuse_missing_file(url: str) -> None:
    """Asking must not make a database; only `up`, `node` and `store migrate` do."""
    from rota.config import sqlite_path

    path = sqlite_path(url)
    if path is not None and not path.exists():
        raise StoreRefused(
            f"there is no store at {path}. Name another with --store, or make one here: rota store migrate"
        )


def person() -> str:
    """Who signs the history: the user that called."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
