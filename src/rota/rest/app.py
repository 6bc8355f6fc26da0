"""The routes of a node: `/healthz` and `/readyz`. Callers from beyond loopback get no other."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

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
