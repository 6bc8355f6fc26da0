"""The routes of a node: whether it lives, and whether it is ready to work."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


def app(name: str, version: str, is_ready: Callable[[], bool]) -> Starlette:
    """`/healthz` answers while the process does; `/readyz` only while the node has joined the cluster."""

    def healthz(_: Request) -> JSONResponse:
        return JSONResponse({"node": name, "version": version})

    def readyz(_: Request) -> JSONResponse:
        ready = is_ready()
        return JSONResponse({"node": name, "ready": ready}, status_code=200 if ready else 503)

    return Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz)])
