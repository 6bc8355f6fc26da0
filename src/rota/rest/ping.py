"""Check over HTTP whether another node lives, and which one it is."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from rota.model.node import PingAnswer

if TYPE_CHECKING:
    import httpx2

PATIENCE_S = 3.0
ANSWER_MAX = 4096


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
