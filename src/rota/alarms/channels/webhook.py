"""Webhook: a signed POST with a JSON body, to an address that was checked, without redirects.

    X-Rota-Signature: t=1767225600,v1=hex(HMAC-SHA256(secret, "1767225600." + body))

The receiver compares the signature, refuses what is older than it likes, and tells a repetition by `X-Rota-Message`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ssl
from contextlib import suppress

from rota.alarms.channels.channel import AlarmChannel, CourierSettings, message_json
from rota.errors import Undelivered
from rota.execution.kinds.http import url
from rota.execution.worker.address import RequestTarget, request_target
from rota.execution.worker_protocol import TaskFault
from rota.model.alarm import Channel, Message
from rota.ports import Clock

LINE_MAX = 4096
"""The longest status line that is read."""
GOOD = range(200, 300)
TLS_CLOSE_S = 1.0
"""How long closing a TLS connection may take: the answer is known by then, or its time is up."""


class WebhookChannel(AlarmChannel):
    """`webhook: https://example.com/hook`"""

    name = "webhook"
    signed = True

    def to(self, value: object) -> tuple[str, ...]:
        return (url(value),)

    async def send(self, settings: CourierSettings, clock: Clock, channel: Channel, message: Message) -> str:
        """Post the message, and return the first line of the response."""
        try:
            where = await asyncio.to_thread(request_target, channel.to[0], settings.hosts)
        except TaskFault as refused:
            raise Undelivered(f"{refused}; to allow it, name its host in alarm.hosts") from None
        content = message_json(message)
        signed = signature(channel.secret, int(clock.wall().timestamp()), content)
        answer = await _post(where, _head(where, signed, message, len(content)) + content)
        status = answer.split(maxsplit=2)[1:2]
        if not status or not status[0].isdigit() or int(status[0]) not in GOOD:
            raise Undelivered(f"answered {answer or 'nothing'}")
        return answer


def signature(secret: str, at_s: int, content: bytes) -> str:
    """The signature, which proves who sent this and when."""
    signed = hmac.new(secret.encode(), b"%d." % at_s + content, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={signed}"


def _head(where: RequestTarget, signed: str, message: Message, size: int) -> bytes:
    host = f"[{where.host}]" if ":" in where.host else where.host
    lines = (
        f"POST {where.path} HTTP/1.1",
        f"Host: {host}:{where.port}",
        "User-Agent: rota",
        "Content-Type: application/json",
        f"Content-Length: {size}",
        f"X-Rota-Alarm: {message.kind}",
        f"X-Rota-Message: {message.id}",
        f"X-Rota-Signature: {signed}",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode("latin-1")


async def _post(where: RequestTarget, request: bytes) -> str:
    """Send the request to the first address that accepts a connection, and return the status line."""
    reader, writer = await _connected(where)
    try:
        writer.write(request)
        await writer.drain()
        line = await reader.readuntil(b"\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise Undelivered("the answer is not HTTP") from None
    finally:
        writer.close()
        with suppress(OSError, ssl.SSLError):
            await writer.wait_closed()
    return line.decode("latin-1").strip()


async def _connected(where: RequestTarget) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    error: OSError | None = None
    context = ssl.create_default_context() if where.secure else None
    for _, address in where.addresses:
        try:
            return await asyncio.open_connection(
                address[0],
                address[1],
                ssl=context,
                server_hostname=where.host if where.secure else None,
                ssl_shutdown_timeout=TLS_CLOSE_S if where.secure else None,
                limit=LINE_MAX,
            )
        except OSError as refused:
            error = refused
    raise error or Undelivered(f"{where.host} has no address")
