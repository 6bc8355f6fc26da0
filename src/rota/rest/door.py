"""The port of a node: bound before the node joins, because joining tells the address; served while it runs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import cast

import structlog
import uvicorn
from starlette.types import ASGIApp

from rota.errors import InvalidInput
from rota.rest.address import Listen, advertised, listen_on, local_address
from rota.rest.connections import CONNECTIONS_MAX, Connections

BACKLOG = 32
"""How many callers one turn of the loop takes in."""
QUEUE = 1024
"""How many more the kernel lets wait for that: whom it turns away comes again only after a second."""
HEAD_MAX = 16 * 1024
TICK_S = 1.0
DESCRIPTORS = CONNECTIONS_MAX + 2 * BACKLOG
"""How many the port takes at most: those that were just taken in, or cut off, count until the loop's next turn."""

log = structlog.get_logger()


class Door:
    """An HTTP server in this process's own loop."""

    def __init__(
        self,
        app: ASGIApp,
        listen: str = "",
        advertise: str = "",
        *,
        servers: Sequence[str] = (),
        connections: Connections | None = None,
    ) -> None:
        """`servers` are the hosts that all nodes of the cluster reach. Nobody asked for a port: then another will do if
        the usual one is taken."""
        local = local_address(servers)
        wanted = listen_on(listen, local)
        self._app = app
        self._connections = Connections() if connections is None else connections
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._socket = _bound(wanted)
        host, port = wanted.host, int(self._socket.getsockname()[1])
        self.bound = host, port
        """What it listens on."""
        try:
            self.address = advertised(listen, advertise, host, port, local)
            """Where others reach this node."""
        except InvalidInput:
            self._socket.close()
            raise
        if port != wanted.port and wanted.port:
            log.info("node.port_taken", usual=wanted.port, address=self.address)

    async def open(self) -> None:
        """Start serving."""
        config = uvicorn.Config(
            self._app,
            http=cast("type[asyncio.Protocol]", self._connections.protocol),  # uvicorn only calls it
            ws="none",
            backlog=BACKLOG,
            h11_max_incomplete_event_size=HEAD_MAX,
            log_config=None,
            log_level="critical",  # what strangers send is not worth a line each
            access_log=False,
            proxy_headers=False,  # there is no proxy in front, so a caller must not claim to be one
            lifespan="off",
            timeout_graceful_shutdown=2,
        )
        self._server = _Server(config, asyncio.Event())
        self._serving = asyncio.create_task(self._server.serve([self._socket]), name="Door")

    async def close(self) -> None:
        """Stop serving."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            self._server.ending.set()
            await self._serving
        self._socket.close()


class _Server(uvicorn.Server):
    async def main_loop(self) -> None:
        """Look once a second whether it is to end, and tell the time; uvicorn would look ten times."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self.ending.wait()

    def __init__(self, config: uvicorn.Config, ending: asyncio.Event) -> None:
        super().__init__(config)
        self.ending = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(QUEUE)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command line; uvicorn would take them."""
        yield


def _bound(wanted: Listen) -> socket.socket:
    """Return a bound socket; on any free port if the usual one is taken and nobody named it."""
    host, port, asked = wanted
    try:
        both = host == "::" and socket.has_dualstack_ipv6()  # all addresses means those of IPv4, too
        return socket.create_server((host, port), backlog=BACKLOG, family=_family(host), dualstack_ipv6=both)
    except OSError as error:
        if not asked:
            return _bound(Listen(host, 0, asked=True))
        reason = f"{host}:{port} cannot be listened on: {error.strerror or error}"
        raise InvalidInput.of("node.listen", reason) from None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
