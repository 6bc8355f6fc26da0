"""Open the store and the coordinator that the global options name."""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from rota.cli.lazy import globals_of
from rota.cli.loading import loading
from rota.cli.output import say
from rota.errors import StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from rota.config import Config, Sourced
    from rota.control import Control
    from rota.ports import Clock, Coordinator, Store

T = TypeVar("T")

_COORDINATOR = "rota.coordinator"


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    ctx.meta[_COORDINATOR] = value


COORDINATOR_OPTION = click.option(
    "--coordinator",
    metavar="URL",
    expose_value=False,
    callback=_keep,
    help="zookeeper://HOST:PORT or etcd://HOST:PORT. [default: the store]",
)


class Session(NamedTuple):
    """The configuration, clock, store and control that a command uses."""

    config: Config
    clock: Clock
    store: Store
    control: Control


def settings(ctx: click.Context, flags: Mapping[str, object] | None = None) -> dict[str, Sourced]:
    """Every setting, from its strongest source. A variable that means nothing is told of: it is a setting that somebody
    believes to have set."""
    from rota.config import exposed, load, unknown_variables

    for name, nearest in unknown_variables():
        say(f"warning: {name} is no setting of rota{f'; did you mean {nearest}?' if nearest else ''}", file=sys.stderr)
    given = globals_of(ctx)
    found = load({"store.url": given.store, **(flags or {})}, file=given.config)
    for warning in exposed(found):
        say(f"warning: {warning}", file=sys.stderr)
    return found


def configuration(ctx: click.Context, flags: Mapping[str, object] | None = None) -> Config:
    from rota.config import config_of

    return config_of(settings(ctx, flags))


@asynccontextmanager
async def opened(config: Config, *, actor: str, coordinated: bool = False) -> AsyncIterator[Session]:
    """Open a session on the configured store and, with `coordinated`, its coordinator. Sends nothing yet."""
    from rota.control import Control
    from rota.wiring import log_store, open_coordinator, open_store, system_clock

    logging.getLogger("asyncmy").setLevel(logging.ERROR)  # it repeats every note of the server as a warning
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)  # the node tells of an outage in its own words
    clock = system_clock()
    if config.store.url == "memory:" and not config.store.may_forget:
        raise StoreRefused("memory: forgets everything when the process ends; use sqlite:///rota.db")
    try:
        with loading():
            store = open_store(config.store.url, clock, actor=actor, may_forget=config.store.may_forget)
    except OSError as error:
        raise StoreUnavailable(f"the store cannot be opened: {error}") from None
    coordinator: Coordinator | None = None
    try:
        coordinator = open_coordinator(config.coordinator, store, clock) if coordinated else None
        yield Session(config, clock, store, Control(store, clock, log_store(config), coordinator))
    finally:
        if coordinator is not None:
            await coordinator.close()
        await store.close()


def ask(
    ctx: click.Context,
    work: Callable[[Session], Awaitable[T]],
    *,
    coordinated: bool = False,
    flags: Mapping[str, object] | None = None,
) -> T:
    """Do something with a store that is there and fit for use; `coordinated`: with the coordinator too; `flags` are
    settings that the command line gives."""
    from rota.cli import log
    from rota.cli.output import as_json

    config = configuration(ctx, {"coordinator.url": ctx.meta.get(_COORDINATOR), **(flags or {})})
    refuse_missing_file(config.store.url)
    log.start("json" if as_json(ctx) else "text")  # to stderr: records that this release cannot read are reported there

    async def asked() -> T:
        async with opened(config, actor=person(), coordinated=coordinated) as session:
            await session.store.check()
            return await work(session)

    return asyncio.run(asked())


def refuse_missing_file(url: str) -> None:
    """Refuse a store file that does not exist. Only `up`, `node start` and `store migrate` create one."""
    from rota.config import sqlite_path

    path = sqlite_path(url)
    if path is not None and not path.exists():
        raise StoreRefused(
            f"there is no store at {path}. Name another with --store, or make one here: rota store migrate"
        )


def person() -> str:
    """Return the actor for the history: the calling user and this host."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
