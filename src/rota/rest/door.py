"""The port of a node: bound before the node joins, so that it can say where it is; served while it runs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from rota.errors import InvalidInput

LISTEN = "127.0.0.1:7700"
BACKLOG = 100


class Door:
    """An HTTP server in this process's own loop."""

    def __init__(self, app: ASGIApp, listen: str = "", advertise: str = "") -> None:
        """Nobody asked for a port: then another will do if the usual one is taken."""
        host, port = split_address("node.listen", listen or LISTEN)
        if advertise:
            split_address("node.advertise", advertise)
        self._app = app
        self._socket = _bound(host, port, any_port=not listen)
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        own = f"{_reachable(host)}:{self._socket.getsockname()[1]}"
        self.address = advertise or own
        """Where others reach this node."""

    async def open(self) -> None:
        """Begin to serve."""
        config = uvicorn.Config(
            self._app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=2
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve([self._socket]), name="Door")

    async def close(self) -> None:
        """Serve nobody any more."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
        self._socket.close()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the business of the command line."""
        yield


def split_address(field: str, text: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[host]:port`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise InvalidInput.of(field, f"must be HOST:PORT, not {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _bound(host: str, port: int, *, any_port: bool) -> socket.socket:
    """A bound socket; on any port if that one is taken and nobody has asked for it."""
    try:
        return socket.create_server((host, port), backlog=BACKLOG, family=_family(host))
    except OSError as error:
        if any_port:
            return _bound(host, 0, any_port=False)
        reason = f"{host}:{port} cannot be listened on: {error.strerror or error}"
        raise InvalidInput.of("node.listen", reason) from None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _reachable(host: str) -> str:
    """A name for this host, where it listens on all of its addresses."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - only compared
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
