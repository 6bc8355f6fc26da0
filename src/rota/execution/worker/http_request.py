"""Makes the request of an http task: to an address that was checked, without redirects, with a bounded answer.

It carries the run, the item, the token and the idempotency key, and no credential of ours. Its timeout is that of the
attempt: the agent says stop, and the connection is cut.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import sys
import threading
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from rota.execution.worker.address import RequestTarget, request_target
from rota.execution.worker.item import WorkerItem
from rota.execution.worker_protocol import TaskFault
from rota.model.work import RESULT_MAX

BODY_MAX = 64 * 1024
"""How much of an answer is kept."""
SILENCE_S = 60.0
"""How long the server may send nothing at all."""
FAILED = 400
REDIRECTS = frozenset({301, 302, 303, 307, 308})


class HttpRequest:
    """One request. `make` runs in a thread; another thread may call `stop` at any time."""

    def __init__(self, item: WorkerItem, hosts: tuple[str, ...]) -> None:
        self._item = item
        self._hosts = hosts
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._stopped = False

    def make(self) -> dict[str, Any]:
        config = self._item.order.config or {}
        where = request_target(str(config["url"]), self._hosts)
        connection = _Connection(where, self)
        try:
            connection.request(config.get("method", "GET"), where.path, *_content(config, self._item))
            with connection.getresponse() as answer:
                return _kept(answer.status, answer.reason, answer.read(BODY_MAX + 1))
        except (OSError, http.client.HTTPException, ValueError):
            if self._stopped:
                raise _stopped() from None
            raise
        finally:
            connection.close()

    def stop(self) -> None:
        """Cut the connection, so that `make` returns at once."""
        with self._lock:
            self._stopped = True
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def watch(self, link: socket.socket) -> socket.socket:
        with self._lock:
            self._socket = link
            if self._stopped:
                link.close()
                raise _stopped()
        return link


class _Connection(http.client.HTTPConnection):
    """A connection to an address that was checked, with the name of its host for TLS."""

    def __init__(self, where: RequestTarget, request: HttpRequest) -> None:
        super().__init__(where.host, where.port, timeout=SILENCE_S)
        self.default_port = 443 if where.secure else 80
        self._where = where
        self._request = request

    def connect(self) -> None:
        link = self._request.watch(self._connected())
        if self._where.secure:
            context = ssl.create_default_context()
            link = self._request.watch(context.wrap_socket(link, server_hostname=self._where.host))
        self.sock = link

    def _connected(self) -> socket.socket:
        error: OSError | None = None
        for family, address in self._where.addresses:
            link = self._request.watch(socket.socket(family, socket.SOCK_STREAM))
            link.settimeout(SILENCE_S)
            try:
                link.connect(address)
            except OSError as refused:
                link.close()
                error = refused
            else:
                return link
        raise error or OSError(f"{self._where.host} has no address")


def _content(config: dict[str, Any], item: WorkerItem) -> tuple[bytes | None, dict[str, str]]:
    body = config.get("body")
    headers = {"User-Agent": "rota", **config.get("headers", {})}
    names = {name.lower() for name in headers}
    if body is not None and not isinstance(body, str):
        body = json.dumps(body, allow_nan=False)
        if "content-type" not in names:
            headers["Content-Type"] = "application/json"
    own = _own_headers(item)
    reserved = {name.lower() for name in own}
    kept = {name: text for name, text in headers.items() if name.lower() not in reserved}
    return None if body is None else body.encode(), {**kept, **own}


def _own_headers(item: WorkerItem) -> dict[str, str]:
    order = item.order
    return {
        "X-Rota-Run": str(order.run_id),
        "X-Rota-Item": str(order.item_id),
        "X-Rota-Token": str(order.token),
        "X-Rota-Attempt": str(order.attempt),
        "Idempotency-Key": quote(order.key, safe="!#$%&'()*+,/:;=?@[]~"),
    }


def _kept(status: int, reason: str, body: bytes) -> dict[str, Any]:
    """Write the answer to the log and return the result. Raises TaskFault for an error status or a redirect."""
    more = len(body) > BODY_MAX
    body = body[:BODY_MAX]
    sys.stdout.write(f"HTTP {status} {reason}\n")
    sys.stdout.buffer.write(body)
    if more:
        sys.stdout.write(f"\n[rota: only the first {BODY_MAX} bytes of the answer are kept]\n")
    if status >= FAILED or status in REDIRECTS:
        hint = "; redirects are not followed, give the final URL" if status in REDIRECTS else ""
        raise TaskFault(str(status), f"answered {status} {reason}".strip() + hint, status)
    text = body.decode(errors="replace")
    result = {"status": status, "body": text, "truncated": more}
    if len(json.dumps(result, ensure_ascii=False).encode()) > RESULT_MAX:
        result = {"status": status, "body": None, "truncated": True}
    return result


def _stopped() -> TaskFault:
    return TaskFault("stopped", "the request was cut off: its time was up, or it was cancelled")
