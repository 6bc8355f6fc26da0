"""Read the URL of servers, above all of a coordinator: hosts, user, options, certificates. Messages repeat nothing of
a password."""

from __future__ import annotations

import re
import ssl
from collections.abc import Collection, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from rota.errors import InvalidInput

_HOST = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?", re.ASCII)


class ServerUrl(NamedTuple):
    """What a URL says."""

    hosts: tuple[str, ...]
    """Each as host:port."""
    path: str
    user: str
    password: str
    options: Mapping[str, str]


def read_url(url: str, scheme: str, *, port: int, options: Collection[str], form: str) -> ServerUrl:
    """Take a URL apart. `form` tells people what it should look like."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise wrong(form) from None
    who, _, where = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    if parts.scheme != scheme or parts.fragment:
        raise wrong(form)
    if bool(user) != bool(password):
        raise wrong("a user needs a password, and a password a user")
    hosts = tuple(_host(each, port, form) for each in where.split(","))
    return ServerUrl(hosts, parts.path.rstrip("/"), unquote(user), unquote(password), _options(parts.query, options))


def tls_context(options: Mapping[str, str]) -> ssl.SSLContext:
    """How to talk to the servers in secret, with the certificates that the options name."""
    ca, cert, key = (options.get(name) for name in ("ca", "cert", "key"))
    if (cert is None) != (key is None):
        raise wrong("cert and key go together")
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(cert, key)
    except OSError as error:  # an SSLError is one, too
        raise wrong(f"its certificates cannot be used: {error}") from None
    return context


def wrong(reason: str) -> InvalidInput:
    return InvalidInput.of("coordinator.url", reason)


def host_and_port(text: str, port: int) -> tuple[str, int] | None:
    """A server as a URL names it; none if that is not how one is written."""
    found = _HOST.fullmatch(text)
    if found is None or int(found["port"] or port) not in range(1, 65536):
        return None
    return found["host"].strip("[]"), int(found["port"] or port)


def _host(text: str, port: int, form: str) -> str:
    found = host_and_port(text, port)
    if found is None:
        raise wrong(f"a server is host:port; {form}")
    host, number = found
    return f"[{host}]:{number}" if ":" in host else f"{host}:{number}"


def _options(query: str, known: Collection[str]) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    options = dict(pairs)
    if unknown := sorted(set(options) - set(known)):
        raise wrong(f"{', '.join(unknown)} cannot be set in this URL; allowed: {', '.join(known)}")
    if len(options) < len(pairs) or not all(options.values()):
        raise wrong("each option is given once, with a value")
    return options
