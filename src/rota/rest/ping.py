"""Ask another node whether it lives."""

from __future__ import annotations

import httpx2

PATIENCE_S = 3.0


class Pinger:
    """Asks nodes for `/healthz`, over connections that are kept until the process ends."""

    def __init__(self) -> None:
        self._client: httpx2.AsyncClient | None = None

    async def __call__(self, address: str) -> bool:
        self._client = self._client or httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False)
        try:
            answer = await self._client.get(f"http://{address}/healthz")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError):
            return False
        return answer.status_code == httpx2.codes.OK
