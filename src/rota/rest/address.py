"""Where a node listens, and the address under which its peers reach it. Refuses what cannot be right.

listen                       the address by which this host reaches the store; loopback if the store is on it
advertise                    where it listens; with 0.0.0.0 or ::, again the address by which it reaches the store
advertised port              the one that was really bound
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from rota.errors import InvalidInput

PORT = 7700
LOOPBACK = "127.0.0.1"
WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - only compared
_DISCARD = 9

Address = IPv4Address | IPv6Address


class Listen(NamedTuple):
    """What to bind. `asked`: the port was configured, so no other may be used."""

    host: str
    port: int
    asked: bool


def server_hosts(*urls: str) -> tuple[str, ...]:
    """The hosts of the store and the coordinator, in the order of their URLs; none for a file or a local socket."""
    return tuple(host for url in urls for host in _hosts(url))


def local_address(hosts: Iterable[str]) -> str:
    """The address of this host from which it reaches the first of these that is elsewhere. Sends nothing."""
    found = [address for host in hosts for address in _routes(host)]
    return next((it for it in found if not ip_address(it).is_loopback), found[0] if found else LOOPBACK)


def listen_on(listen: str, local: str) -> Listen:
    if not listen:
        return Listen(local, PORT, asked=False)
    host, port = split_address("node.listen", listen)
    return Listen(host, port, asked=True)


def advertised(listen: str, advertise: str, host: str, port: int, local: str) -> str:
    """The address to tell the others, for a node that listens on this host and port. Raises InvalidInput."""
    field = "node.advertise" if advertise else "node.listen"
    if advertise:
        name, given = split_address(field, advertise, port=port)
        if given == 0:
            raise InvalidInput.of(field, f"{advertise} has port 0, at which nobody is reached")
    else:
        name, given = (_own_name(local) if host in WILDCARDS else host), port
    found = _resolved(name)
    if not found:
        raise InvalidInput.of(field, f"{name} is not known on this host; give an address that the other nodes reach")
    if any(it.is_unspecified or it.is_multicast for it in found):
        raise InvalidInput.of(field, f"{name} is no address at which others reach this node; give one of its own")
    if not ip_address(local).is_loopback and all(it.is_loopback for it in found):
        reason = f"{name} is reached from this host only, and the store is on another (this host reaches it as {local})"
        raise InvalidInput.of(field, f"{reason}; give an address that the other nodes reach")
    return f"[{name}]:{given}" if ":" in name else f"{name}:{given}"


def split_address(field: str, text: str, *, port: int | None = None) -> tuple[str, int]:
    """Host and port of `host:port` or `[host]:port`; with `port`, which is the default, also of a host alone."""
    if port is not None and (_is_address(text) or ":" not in text or text.endswith("]")):
        text = f"{text}:{port}" if ":" not in text or text.endswith("]") else f"[{text}]:{port}"
    host, colon, digits = text.rpartition(":")
    if not colon or not host or not (digits.isascii() and digits.isdecimal()) or int(digits) > 65535:
        raise InvalidInput.of(field, f"must be HOST:PORT, not {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(digits)


def _hosts(url: str) -> Iterator[str]:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme.startswith("sqlite"):
            return
        named = parts.netloc.rpartition("@")[2].split(",")
        asked = (host for text in parse_qs(parts.query).get("host", ()) for host in text.split(","))
        for text in (*named, *asked):
            host = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
            if host and not host.startswith(("/", "@")):
                yield host


def _routes(host: str) -> Iterator[str]:
    """The addresses of this host from which packets to that one would go; connecting such a socket sends none."""
    with suppress(OSError):
        for family, kind, _, _, where in socket.getaddrinfo(host, _DISCARD, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, kind) as probe:
                probe.connect(where)
                yield str(probe.getsockname()[0]).partition("%")[0]


def _own_name(local: str) -> str:
    """Return the name of this host, for a node that listens on all of its addresses."""
    if not ip_address(local).is_loopback:
        return local
    name = socket.gethostname()
    return name if _resolved(name) else local


def _resolved(host: str) -> list[Address]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [ip_address(str(where[0]).partition("%")[0]) for *_, where in found]


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
