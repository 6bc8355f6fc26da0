"""How agent, zygote and supervisors talk: one JSON object a packet, descriptors beside it. Decides nothing.

A supervisor must never wait for the agent to read: an agent that is stopped reads nothing, and the dead-man's switch
must work all the same. So `try_send` gives up when the other side is full or gone.

Linux keeps packets apart. Elsewhere each begins with its length, in a stream; a link that took only a part of a packet
is of no use any more, and is ended.
"""

from __future__ import annotations

import array
import json
import os
import socket
from contextlib import suppress
from typing import Any

from rota import system
from rota.execution.isolation.waiting import is_readable

PACKET_MAX = 64 * 1024
FDS_MAX = 8
_ROOM = socket.CMSG_SPACE(FDS_MAX * array.array("i").itemsize)
_HEAD = 4
_BODY_S = 1.0
"""How long the rest of a packet may take. It was sent at once, so this is for a sender that was stopped meanwhile."""
_SEND = socket.MSG_NOSIGNAL if system.IS_LINUX else 0
_RECEIVE = socket.MSG_CMSG_CLOEXEC if system.IS_LINUX else 0

Message = dict[str, Any]


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets that keep packets apart. Each sees when the other is closed."""
    if system.IS_LINUX:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for each in ends:  # macOS begins with 8 KiB
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * PACKET_MAX)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * PACKET_MAX)
    return ends


def send(link: socket.socket, message: Message, descriptors: tuple[int, ...] = ()) -> None:
    """Send, or raise: BlockingIOError when the other side is full and the link does not block."""
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    data = json.dumps(message).encode()
    if link.type == socket.SOCK_STREAM:
        data = len(data).to_bytes(_HEAD, "big") + data
    if link.sendmsg([data], ancillary, _SEND) < len(data):
        link.shutdown(socket.SHUT_RDWR)
        raise ConnectionResetError("the other side does not listen")


def try_send(link: socket.socket, message: Message, descriptors: tuple[int, ...] = ()) -> None:
    """Send if that is possible at once, else drop the message."""
    with suppress(OSError):
        send(link, message, descriptors)


def receive(link: socket.socket) -> tuple[Message | None, list[int]]:
    """The next packet and its descriptors; no message when the other side is gone."""
    is_stream = link.type == socket.SOCK_STREAM
    try:
        data, ancillary, _, _ = link.recvmsg(_HEAD if is_stream else PACKET_MAX, _ROOM, _RECEIVE)
        if is_stream and data:
            data = _exactly(link, int.from_bytes(data + _exactly(link, _HEAD - len(data)), "big"))
    except ConnectionError:
        return None, []
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    if is_stream:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
    return (json.loads(data) if data else None), list(descriptors)


def _exactly(link: socket.socket, size: int) -> bytes:
    """So many bytes of a packet that has begun."""
    data = b""
    while len(data) < size:
        piece = link.recv(size - len(data)) if is_readable(link, _BODY_S) else b""
        if not piece:
            raise ConnectionResetError("a packet was cut short")
        data += piece
    return data


def pack(message: Message) -> int:
    """A descriptor that holds a message of any size: a command line may be larger than a packet."""
    descriptor = system.anonymous_file("order")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(json.dumps(message).encode())
    return descriptor


def unpack(descriptor: int) -> Message:
    with os.fdopen(descriptor, "rb") as file:
        file.seek(0)
        message: Message = json.loads(file.read())
    return message
