"""Deeds against the port of a node and the network of its host."""

import errno
import fcntl
import os
import socket
import struct

from tests.execution.hostile.calls import beyond, in_user_namespace, read, something, table

HOLD = 300
"""More than the port takes."""


def ask(c, line):
    """The first bytes of an answer."""
    with socket.create_connection(("127.0.0.1", c["port"]), c["patience_s"]) as link:
        link.sendall(f"{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        return link.recv(64)


def answered(c, line):
    """It should not be."""
    if b" 200 " not in ask(c, line):
        raise OSError(0, "refused by the node")


def shut_out(c, say=b""):
    """Hold more connections than there are, and see whether somebody else is still answered."""
    held = []
    for _ in range(HOLD):
        try:
            held.append(socket.create_connection(("127.0.0.1", c["port"]), c["patience_s"]))
            held[-1].sendall(say) if say else None
        except OSError:
            break
    try:
        seen = ask(c, "GET /healthz")
    except OSError:
        return
    if b" 200 " in seen:
        raise OSError(0, "the node answers all the same")


def bind(c, host="127.0.0.1", **options):
    with socket.socket() as link:
        for option in options.values():
            link.setsockopt(socket.SOL_SOCKET, option, 1)
        link.bind((host, c["port"]))
        link.listen()


def netlink(family, kind, body):
    """Send an order to the kernel, and raise what it answers."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family) as link:
        link.send(struct.pack("IHHII", 16 + len(body), kind, 1 | 4, 1, 0) + body)
        answer = link.recv(4096)
        failed = -struct.unpack_from("i", answer, 16)[0] if struct.unpack_from("H", answer, 4)[0] == 2 else 0
        if failed:
            raise OSError(failed, os.strerror(failed))


def destroy(c):
    """End the connections of others, by their ports: SOCK_DESTROY."""
    where = struct.pack("!HH16s16sI8s", c["port"], 0, socket.inet_aton("127.0.0.1"), b"", 0, b"\xff" * 8)
    netlink(4, 21, struct.pack("BBBBI", socket.AF_INET, 6, 0, 0, 0xFFFFFFFF) + where)


def route(c):
    """RTM_NEWROUTE to nowhere."""
    netlink(0, 24, struct.pack("BBBBBBBBI", 2, 32, 0, 0, 254, 3, 253, 6, 0))


def take_down(c):
    with socket.socket() as link:
        fcntl.ioctl(link, 0x8914, struct.pack("16sH14x", b"lo", 0x41))  # SIOCSIFFLAGS, as it is: up and running


def named(c):
    """A socket with a name that somebody of the node listens on."""
    names = [line.split()[-1] for line in read("/proc/net/unix").splitlines() if b"rota" in line]
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(b"\0" + something(names)[0][1:])


table(
    "sockets",
    **{
        "shut others out by idle connections": shut_out,
        "shut others out by half requests": lambda c: shut_out(c, b"GET /healthz HTTP/1.1\r\nX: "),
        "read the settings at the node's port": lambda c: answered(c, "GET /config"),
        "list jobs at the node's port": lambda c: answered(c, "GET /jobs"),
        "stop the node at its port": lambda c: answered(c, "POST /stop"),
        "have the node ask elsewhere": lambda c: answered(c, f"GET http://127.0.0.1:{c['port']}/x"),
        "have the node connect elsewhere": lambda c: answered(c, f"CONNECT 127.0.0.1:{c['port']}"),
        "leave the node's folder by its port": lambda c: answered(c, "GET /../../../etc/passwd"),
        "listen at the node's port": bind,
        "share the node's port": lambda c: bind(c, reuse=socket.SO_REUSEPORT),
        "listen at the node's port at every address": lambda c: bind(c, "0.0.0.0", reuse=socket.SO_REUSEADDR),
        "end connections of the node": destroy,
        "connect to a named socket of the node": named,
        "change a route": beyond(route, errno.ENOENT),
        "change the loopback": take_down,
        "use a port below 1024": lambda c: socket.socket().bind(("127.0.0.1", 999)),
        "use a raw socket": lambda c: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
        "listen to all packets": lambda c: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3),
        "listen to all packets as root of a user namespace": in_user_namespace(
            lambda c: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)
        ),
        "answer for any address": lambda c: socket.socket().setsockopt(socket.IPPROTO_IP, 19, 1),
    },
)
