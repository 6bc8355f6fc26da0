"""How agent, zygote and supervisors talk: one JSON object a packet, descriptors beside it. Decides nothing.

Nobody who supervises may ever wait for somebody who listens: an agent that is stopped reads nothing, and the switch
must work all the same. So `tell` gives up when the other side is full or gone.
"""

from __future__ import annotations

import array
import json
import os
import socket
from contextlib import suppress
from typing import Any

PACKET_MAX = 64 * 1024
FDS_MAX = 8
_ROOM = socket.CMSG_SPACE(FDS_MAX * array.array("i").itemsize)

Message = dict[str, Any]


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends that keep packets apart; the end of one side is seen by the other."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(link: socket.socket, message: Message, descriptors: tuple[int, ...] = ()) -> None:
    """Send, or raise: BlockingIOError when the other side is full and the link does not block."""
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    link.sendmsg([json.dumps(message).encode()], ancillary, socket.MSG_NOSIGNAL)


def tell(link: socket.socket, message: Message, descriptors: tuple[int, ...] = ()) -> None:
    """Send if that is possible at once."""
    with suppress(OSError):
        send(link, message, descriptors)


def receive(link: socket.socket) -> tuple[Message | None, list[int]]:
    """The next packet and its descriptors; no message when the other side is gone."""
    try:
        data, ancillary, _, _ = link.recvmsg(PACKET_MAX, _ROOM, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return None, []
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return (json.loads(data) if data else None), list(descriptors)


def pack(message: Message) -> int:
    """A descriptor that holds a message of any size: a command line may be larger than a packet."""
    descriptor = os.memfd_create("order")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(json.dumps(message).encode())
    return descriptor


def unpack(descriptor: int) -> Message:
    """Read what `pack` wrote."""
    with os.fdopen(descriptor, "rb") as file:
        file.seek(0)
        message: Message = json.loads(file.read())
    return message
