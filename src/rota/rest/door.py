"""The port of a node: bound before the node joins, because joining tells the address; served while it runs. Its routes
are `/healthz` and `/readyz`; callers from beyond loopback get no other.

It has so many connections at most, and none for long without a request:

    made ──a whole head within WAIT_S──> asks ──answered──> idle ──next request within WAIT_S──> asks
      │                                                       │
      └────── too slow, or the longest idle when another comes to a full door: cut off ──────┘

A caller that sends its request at once is answered, however many others hold idle connections. A connection that is
being answered is never cut off for another, unless it does not read its answers; if all are, the newcomer is refused.

A `Pinger` asks over HTTP whether another node lives, and which one it is.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, cast

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from rota.errors import InvalidInput
from rota.logger import log
from rota.model.node import PingAnswer
from rota.rest.address import Listen, advertised, listen_on, local_address

if TYPE_CHECKING:
    import httpx2

BACKLOG = 32
"""How many callers one turn of the loop takes in."""
QUEUE = 1024
"""How many more the kernel lets wait for that: whom it turns away comes again only after a second."""
HEAD_MAX = 16 * 1024
TICK_S = 1.0
CONNECTIONS_MAX = 128
DESCRIPTORS = CONNECTIONS_MAX + 2 * BACKLOG
"""How many the port takes at most: those that were just taken in, or cut off, count until the loop's next turn."""
WAIT_S = 10.0
"""How long a connection may go without a whole request."""
PATIENCE_S = 3.0
ANSWER_MAX = 4096

OPEN = frozenset({"/healthz", "/readyz"})
"""What tells no secrets and changes nothing."""


def app(name: str, version: str, node_id: Callable[[], int | None]) -> ASGIApp:
    """`/healthz` answers while the process does, and says who it is; `/readyz` only while the node has joined."""

    async def healthz(_: Request) -> JSONResponse:
        return JSONResponse({"node": name, "id": node_id(), "version": version})

    async def readyz(_: Request) -> JSONResponse:
        ready = node_id() is not None
        return JSONResponse({"node": name, "ready": ready}, status_code=200 if ready else 503)

    return Guarded(Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz)]))


class Guarded:
    """Answers only the routes in `OPEN` to callers beyond loopback: without TLS, others could forge requests."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN or _is_private(scope):
            return await self._inner(scope, receive, send)
        reason = "beyond loopback and without TLS only /healthz and /readyz answer"
        return await JSONResponse({"code": "tls_required", "reason": reason}, status_code=403)(scope, receive, send)


def _is_private(scope: Scope) -> bool:
    ends = (scope.get("client"), scope.get("server"))
    return scope["scheme"] == "https" or all(end is not None and ip_address(end[0]).is_loopback for end in ends)


class Connections:
    """The open connections, the longest idle first."""

    def __init__(self, most: int = CONNECTIONS_MAX, wait_s: float = WAIT_S) -> None:
        self._most = most
        self.wait_s = wait_s
        self._open: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def protocol(self, **parts: Any) -> Connection:
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
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), backlog=BACKLOG, family=family, dualstack_ipv6=both)
    except OSError as error:
        if not asked:
            return _bound(Listen(host, 0, asked=True))
        reason = f"{host}:{port} cannot be listened on: {error.strerror or error}"
        raise InvalidInput.of("node.listen", reason) from None


class Pinger:
    """Requests `/healthz` of nodes, each time over a new connection: an old one proves nothing about the port."""

    def __init__(self) -> None:
        self._client: httpx2.AsyncClient | None = None

    async def __call__(self, address: str) -> PingAnswer | None:
        """Return who answers at that address; None if nobody does in time, or the answer is not that of a node."""
        import httpx2  # heavy: a node that is alone never needs it

        self._client = self._client or httpx2.AsyncClient(
            timeout=PATIENCE_S, trust_env=False, limits=httpx2.Limits(max_connections=20, max_keepalive_connections=0)
        )
        try:
            async with asyncio.timeout(PATIENCE_S * 2):  # the client bounds each read, but not all of them together
                return await self._ask(self._client, address)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, TimeoutError, msgspec.DecodeError):
            return None

    async def _ask(self, client: httpx2.AsyncClient, address: str) -> PingAnswer | None:
        async with client.stream("GET", f"http://{address}/healthz") as answer:
            if answer.status_code != HTTPStatus.OK:
                return None
            body = b""
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > ANSWER_MAX:
                    return None
        return msgspec.json.decode(body, type=PingAnswer)
