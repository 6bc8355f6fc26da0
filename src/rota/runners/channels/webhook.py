"""Webhook: a POST with a JSON body, signed, to a judged address, without redirects.

    X-Rota-Signature: t=1767225600,v1=hex(HMAC-SHA256(secret, "1767225600." + body))

The receiver compares the signature, refuses what is older than it likes, and tells a repetition by `X-Rota-Message`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ssl
from contextlib import suppress

from rota.errors import Undelivered
from rota.model.alarm import Channel, Message
from rota.ports import Clock
from rota.runners.channels.body import body
from rota.runners.channels.settings import CourierSettings
from rota.runners.worker.address import Target, target
from rota.runners.worker.faults import Fault

LINE_MAX = 4096
GOOD = range(200, 300)
GOODBYE_S = 1.0
"""How long the end of a TLS connection may take: what it was for is known by then, or its time is up."""


async def send(settings: CourierSettings, clock: Clock, channel: Channel, message: Message) -> str:
    """Post the message; the first line of the response is the answer."""
    try:
        where = await asyncio.to_thread(target, channel.to[0], settings.hosts)
    except Fault as refused:
        raise Undelivered(f"{refused}; to allow it, name its host in alarm.hosts") from None
    content = body(message)
    signed = signature(channel.secret, int(clock.wall().timestamp()), content)
    answer = await _post(where, _head(where, signed, message, len(content)) + content)
    status = answer.split(maxsplit=2)[1:2]
    if not status or not status[0].isdigit() or int(status[0]) not in GOOD:
        raise Undelivered(f"answered {answer or 'nothing'}")
    return answer


def signature(secret: str, at_s: int, content: bytes) -> str:
    """What proves who sent this, and when."""
    signed = hmac.new(secret.encode(), b"%d." % at_s + content, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={signed}"


def _head(where: Target, signed: str, message: Message, size: int) -> bytes:
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


async def _post(where: Target, request: bytes) -> str:
    """Say it to the first address that listens; only the line with the status is read."""
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


async def _connected(where: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    error: OSError | None = None
    context = ssl.create_default_context() if where.secure else None
    for _, address in where.addresses:
        try:
            return await asyncio.open_connection(
                address[0],
                address[1],
                ssl=context,
                server_hostname=where.host if where.secure else None,
                ssl_shutdown_timeout=GOODBYE_S if where.secure else None,
                limit=LINE_MAX,
            )
        except OSError as refused:
            error = refused
    raise error or Undelivered(f"{where.host} has no address")
