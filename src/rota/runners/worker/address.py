"""Which addresses a request may go to: public ones, unless the host was allowed by name.

A name is resolved once, and the connection goes to what was judged; so a name server that answers differently the next
time gains nothing.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rota.runners.worker.faults import Fault

URL_MAX = 2048
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_PORTS = {"http": 80, "https": 443}

IPv4 = ipaddress.IPv4Address
IPv6 = ipaddress.IPv6Address

REFUSED = "address"


class Target(NamedTuple):
    """Where a request goes."""

    secure: bool
    host: str
    port: int
    path: str
    addresses: list[tuple[int, Any]]
    """Families and socket addresses, all of them judged."""


def target(url: str, hosts: tuple[str, ...]) -> Target:
    """Judge a URL and the addresses of its host. Raises Fault; OSError if the name is not known."""
    if len(url) > URL_MAX or not all("!" <= char <= "~" for char in url) or "\\" in url:
        raise Fault(REFUSED, f"the URL must be printable ASCII of at most {URL_MAX} characters without blanks")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        raise Fault(REFUSED, "the URL has a host or port that cannot be") from None
    if parts.scheme not in _PORTS:
        raise Fault(REFUSED, f"the URL must begin with http:// or https://, not {parts.scheme}:")
    if "@" in parts.netloc or not host:
        raise Fault(REFUSED, "the URL must have a host, and no user or password before it")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme == "https", host, port, path, _addresses(host, port, hosts))


def _addresses(host: str, port: int, hosts: tuple[str, ...]) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = [
        (family, where) for family, _, _, _, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    ]
    if host not in hosts and f"{host}:{port}" not in hosts:
        for _, where in found:
            if not is_public(str(where[0])):
                raise Fault(
                    REFUSED,
                    f"{host} has the address {where[0]}, which is not public; if it is meant to be called, "
                    "allow the host on this node",
                )
    return found


def is_public(text: str) -> bool:
    """Whether an address belongs to the public network, also when it carries another one inside."""
    address = ipaddress.ip_address(text.partition("%")[0])
    return all(each.is_global and not each.is_multicast and not each.is_reserved for each in _meant(address))


def _meant(address: IPv4 | IPv6) -> list[IPv4 | IPv6]:
    """An address and those that it is a way to write or to reach."""
    if isinstance(address, IPv4):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    inner: list[IPv4 | IPv6] = []
    if address.sixtofour is not None:
        inner.append(address.sixtofour)
    if address.teredo is not None:
        inner.extend(address.teredo)
    if address in _NAT64:
        return [IPv4(int(address) & 0xFFFFFFFF)]
    return [address, *inner]
