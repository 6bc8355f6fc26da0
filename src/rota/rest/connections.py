"""The connections of a node's port: so many at most, and none for long without a request.

    made ──a whole head within WAIT_S──> asks ──answered──> idle ──next request within WAIT_S──> asks
      │                                                       │
      └────── too slow, or the longest idle when another comes to a full door: cut off ──────┘

A caller that sends its request at once is answered, however many others hold idle connections. A connection that is
being answered is never cut off for another, unless it does not read its answers; if all are, the newcomer is refused.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

CONNECTIONS_MAX = 128
WAIT_S = 10.0
"""How long a connection may go without a whole request."""


class Connections:
    """The open connections, the longest idle first."""

    def __init__(self, most: int = CONNECTIONS_MAX, wait_s: float = WAIT_S) -> None:
        self._most = most
        self.wait_s = wait_s
        self._open: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def protocol(self, **parts: Any) -> Connection:
        """Return the protocol of a new connection."""
        return Connection(self, **parts)

    def admit(self, newcomer: Connection) -> None:
        """Take a connection in. A full door is made free by whoever does not read, else by whoever is idle for longest;
        that may be the newcomer."""
        self.last(newcomer)
        if len(self._open) > self._most:
            deaf = (it for it in self._open if it.is_deaf)
            next(deaf, next(it for it in self._open if it.is_idle)).cut_off()

    def last(self, connection: Connection) -> None:
        """Move a connection to the end of the order: it is new, or was just answered."""
        self._open.pop(connection, None)
        self._open[connection] = None

    def forget(self, connection: Connection) -> None:
        self._open.pop(connection, None)


class Connection(H11Protocol):
    """One caller. The server below has a time-out only for what follows an answer, and every byte resets it."""

    def __init__(self, among: Connections, **parts: Any) -> None:
        super().__init__(**parts)
        self._among = among
        self._patience: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """True if no request of it is waiting for an answer."""
        cycle: RequestResponseCycle | None = self.cycle  # none until the first request, whatever its type says
        return cycle is None or cycle.response_complete

    @property
    def is_deaf(self) -> bool:
        """Whether it leaves so many answers unread that no more can be written: then the next is never complete."""
        return self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()
        self._among.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.is_idle and not self.transport.is_closing():
            self._among.last(self)
            self._await_request()

    def cut_off(self) -> None:
        """Close the connection at once, without waiting for the other side."""
        self._forget()
        self.transport.abort()

    def _await_request(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(self._among.wait_s, self._waited)

    def _waited(self) -> None:
        """Whoever is being answered now has more time, if it reads."""
        if self.is_idle or self.is_deaf:
            self.cut_off()
        else:
            self._await_request()

    def _forget(self) -> None:
        self._among.forget(self)
        if self._patience is not None:
            self._patience.cancel()
