"""Find the server to write to, among those that a URL names.

Each connection is looked at before it is used: does the server take writes, and is its history the newest that this
process has seen? One that lags behind, is not promoted yet, or was left behind by a promotion is passed over. A server
that others have promoted, or filled from a backup, is told so once (`history`), before anything else is asked of it.

    first connection         look at all servers, take the newest history
    later ones               begin with the server that served last; one that did not answer is asked last
    a newer history          connections to all other servers end
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import structlog

HOST_S = 2.0
"""How long one server may take to let us in: with several, a dead one must not use up the time of the others."""
ALONE_S = 5.0

log = structlog.get_logger()


class NotServed(ConnectionError):
    """No server of the URL takes writes now."""


class Look(NamedTuple):
    """What a server says of itself. A store that has no tables yet has no generation."""

    takes_writes: bool
    generation: int | None = None
    why: str = ""


class Driver(Protocol):
    """How to talk to servers of one kind, below any pool."""

    async def open(self, settings: Mapping[str, Any]) -> Any: ...

    async def look(self, conn: Any) -> Look: ...

    def is_away(self, error: Exception) -> bool:
        """Whether a server cannot be reached, or lets nobody in now; a wrong password is none of this."""

    def is_open(self, conn: Any) -> bool: ...

    def end(self, conn: Any) -> None:
        """Close a connection without a word."""


class Servers:
    """The servers of one store."""

    def __init__(self, driver: Driver, hosts: Sequence[tuple[str, int]]) -> None:
        self._driver = driver
        self._hosts = list(hosts)
        self._serving = self._hosts[0]
        self._open: list[tuple[tuple[str, int], Any]] = []
        self.generation: int | None = None
        """The newest that was seen."""
        self.on_generation: Callable[[int], None] = lambda _: None

    async def connect(self, **settings: Any) -> Any:
        """A connection to a server that takes writes; for a pool, which gives the settings."""
        problems: list[str] = []
        refusal: Exception | None = None
        for host in list(self._hosts):
            try:
                conn, look = await self._asked(host, settings)
            except Exception as error:  # noqa: BLE001 - raised below if no other server serves
                if not self._driver.is_away(error):
                    refusal = refusal or error
                problems.append(f"{_name(host)}: {str(error) or 'it did not answer in time'}")
                continue
            try:
                reason = await self._unfit(host, look, settings)
            except BaseException:
                self._driver.end(conn)
                raise
            if reason:
                problems.append(f"{_name(host)}: {reason}")
                self._driver.end(conn)
                continue
            self._heed(host, conn, look)
            return conn
        raise refusal or NotServed("; ".join(problems))

    async def _asked(self, host: tuple[str, int], settings: Mapping[str, Any]) -> tuple[Any, Look]:
        """Look at a server. Whoever connects may have less time than one silent server takes (a renewal has), and is
        cancelled before it comes to the next one: so the next attempt must begin elsewhere."""
        try:
            return await self._looked(host, settings)
        except BaseException:
            self._hosts.remove(host)
            self._hosts.append(host)
            raise

    async def _looked(self, host: tuple[str, int], settings: Mapping[str, Any]) -> tuple[Any, Look]:
        async with asyncio.timeout(ALONE_S if len(self._hosts) == 1 else HOST_S):
            conn = await self._driver.open({**settings, "host": host[0] or None, "port": host[1]})
            try:
                return conn, await self._driver.look(conn)
            except BaseException:
                self._driver.end(conn)
                raise

    async def _unfit(self, host: tuple[str, int], look: Look, settings: Mapping[str, Any]) -> str:
        if not look.takes_writes:
            return look.why
        if look.generation is None:
            return ""
        newest = self.generation
        if newest is None and len(self._hosts) > 1:
            newest = await self._newest(host, settings)
        if newest is not None and look.generation < newest:
            return f"its history is of generation {look.generation}, and {newest} was seen; it was left behind"
        return ""

    async def _newest(self, but: tuple[str, int], settings: Mapping[str, Any]) -> int | None:
        """The newest generation on the other servers: one that came back after a promotion may still take writes."""
        found = []
        for host in [it for it in self._hosts if it != but]:
            with suppress(Exception):  # one that is away, or does not let us in, cannot be asked
                conn, look = await self._looked(host, settings)
                self._driver.end(conn)
                if look.takes_writes and look.generation is not None:
                    found.append(look.generation)
        return max(found, default=None)

    def _heed(self, host: tuple[str, int], conn: Any, look: Look) -> None:
        if self._serving != host:
            log.warning("store.server_changed", server=_name(host), was=_name(self._serving))
            self._serving = host
        self._hosts.remove(host)
        self._hosts.insert(0, host)
        if look.generation is not None and look.generation != self.generation:
            if self.generation is not None:
                self._end_others(host)
            self.generation = look.generation
            self.on_generation(look.generation)
        self._open = [(where, it) for where, it in self._open if self._driver.is_open(it)] + [(host, conn)]

    def _end_others(self, but: tuple[str, int]) -> None:
        """Who still listens to a server that was left behind must not go on there."""
        for where, conn in self._open:
            if where != but:
                self._driver.end(conn)


def _name(host: tuple[str, int]) -> str:
    return f"{host[0]}:{host[1]}"
