"""Read the URL of a database server: hosts, user, database, and how far its certificate is believed.

    postgresql://user:password@one:5432,two:5432/database?sslmode=verify-full&sslrootcert=/etc/ca.pem

The names of the options are PostgreSQL's, also for MySQL and MariaDB. Messages repeat nothing of a password.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from rota.errors import InvalidInput
from rota.model.host import is_this_host
from rota.server_url import host_and_port

MODES = ("disable", "require", "verify-ca", "verify-full")
OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
WRITABLE = ("target_session_attrs", ("read-write", "primary"))
"""Others write this for several hosts; a store is never read from a standby, so nothing else can be asked for."""


class StoreUrl(NamedTuple):
    """What a URL says."""

    hosts: tuple[tuple[str, int], ...]
    """Without a name it is the server that the driver finds on this host."""
    user: str
    password: str
    database: str
    options: Mapping[str, str]

    @property
    def is_local(self) -> bool:
        """Whether nothing leaves this host."""
        return all(is_this_host(host) for host, _ in self.hosts)


def read_store_url(url: str, *, port: int, form: str) -> StoreUrl:
    """Take a URL apart. `form` tells people what it should look like."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise wrong(f"this is not a store URL; use {form}") from None
    who, _, where = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    hosts = tuple(host_and_port(each, port) for each in where.split(",")) if where else (("", port),)
    database = unquote(parts.path.removeprefix("/"))
    if parts.fragment or None in hosts or not database or "/" in database:
        raise wrong(f"this is not a store URL; use {form}")
    return StoreUrl(
        tuple(it for it in hosts if it is not None), unquote(user), unquote(password), database, _options(pairs)
    )


def tls_of(url: StoreUrl) -> ssl.SSLContext | None:
    """How to talk to the servers; none: as plain text. That is the default on this host only: elsewhere it must be
    asked for, and without a CA to believe a server is not asked who it is."""
    given = url.options
    mode = given.get("sslmode") or _default_mode(url)
    if mode == "disable":
        if named := sorted(set(given) & {"sslrootcert", "sslcert", "sslkey"}):
            raise wrong(f"{', '.join(named)} does not go with sslmode=disable")
        return None
    if ("sslcert" in given) != ("sslkey" in given):
        raise wrong("sslcert and sslkey go together")
    try:
        context = ssl.create_default_context(cafile=given.get("sslrootcert"))
        if "sslcert" in given:
            context.load_cert_chain(given["sslcert"], given["sslkey"])
    except OSError as error:  # an SSLError is one, too
        raise wrong(f"its certificates cannot be used: {error}") from None
    context.check_hostname = mode == "verify-full"
    if mode == "require" and "sslrootcert" not in given:
        context.verify_mode = ssl.CERT_NONE
    return context


def wrong(reason: str) -> InvalidInput:
    """What is wrong with the URL."""
    return InvalidInput.of("store", reason)


def _default_mode(url: StoreUrl) -> str:
    if "sslrootcert" in url.options:
        return "verify-full"
    return "disable" if url.is_local else "require"


def _options(pairs: list[tuple[str, str]]) -> dict[str, str]:
    options = dict(pairs)
    if "ssl" in options and "sslmode" not in options:
        options["sslmode"] = options.pop("ssl")
    name, allowed = WRITABLE
    if options.pop(name, allowed[0]) not in allowed:
        raise wrong(f"{name} can only be {' or '.join(allowed)}: nodes write")
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise wrong(f"{', '.join(unknown)} cannot be set in this URL; allowed: {', '.join(OPTIONS)}")
    if not all(options.values()):
        raise wrong("each option has a value")
    if options.get("sslmode", MODES[0]) not in MODES:
        raise wrong(f"sslmode is one of {', '.join(MODES)}; nothing falls back to plain text by itself")
    return options
