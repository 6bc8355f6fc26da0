"""Decides which addresses a request may go to: public ones, unless the host was allowed by name.

A name is resolved once, and the connection goes to the addresses that were checked: a name server that answers
differently the next time changes nothing.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rota.execution.worker_protocol import TaskFault

URL_MAX = 2048
_PORTS = {"http": 80, "https": 443}

# After the IANA registries of special-purpose addresses. Not `is_global` of `ipaddress`: its tables differ between
# patch releases of Python, and all of them miss some of these.
_NOT_PUBLIC_V4 = [
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by the customers of a provider
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, and where clouds tell their secrets
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4, given up
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks of networks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
]
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""The only part of IPv6 that is given out for use on the public network; site-local, unique local, link-local,
multicast, discard and segment routing addresses lie outside."""
_NOT_PUBLIC_V6 = [
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: leads to whatever IPv4 address is inside
        "3fff::/20",  # documentation
    )
]
_CARRIERS = (ipaddress.IPv6Network("::ffff:0:0/96"), ipaddress.IPv6Network("64:ff9b::/96"))
"""IPv4 written as IPv6, and IPv4 behind a translator (NAT64)."""

REFUSED = "address"


class RequestTarget(NamedTuple):
    """Where a request goes."""

    secure: bool
    host: str
    port: int
    path: str
    addresses: list[tuple[int, Any]]
    """Families and socket addresses, all of them checked."""


def request_target(url: str, hosts: tuple[str, ...]) -> RequestTarget:
    """Check a URL and the addresses of its host. Raises TaskFault; OSError if the name is not known."""
    if len(url) > URL_MAX or not all("!" <= char <= "~" for char in url) or "\\" in url:
        raise TaskFault(REFUSED, f"the URL must be printable ASCII of at most {URL_MAX} characters without blanks")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        raise TaskFault(REFUSED, "the URL has a host or port that cannot be") from None
    if parts.scheme not in _PORTS:
        raise TaskFault(REFUSED, f"the URL must begin with http:// or https://, not {parts.scheme}:")
    if "@" in parts.netloc or not host:
        raise TaskFault(REFUSED, "the URL must have a host, and no user or password before it")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return RequestTarget(parts.scheme == "https", host, port, path, _addresses(host, port, hosts))


def _addresses(host: str, port: int, hosts: tuple[str, ...]) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = [
        (family, where) for family, _, _, _, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    ]
    if host not in hosts and f"{host}:{port}" not in hosts:
        for _, where in found:
            if not is_public(str(where[0])):
                raise TaskFault(
                    REFUSED,
                    f"{host} has the address {where[0]}, which is not public; if it is meant to be called, "
                    "allow the host on this node",
                )
    return found


def is_public(text: str) -> bool:
    """True if an address belongs to the public network; so must an address that it carries inside."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if address.version == 4 or any(address in network for network in _CARRIERS):
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return not any(inner in network for network in _NOT_PUBLIC_V4)
    return address in _UNICAST and not any(address in network for network in _NOT_PUBLIC_V6)
