"""Where etcd is and who we are there, read from the URL. Messages repeat nothing of it: part of it is a password."""

from __future__ import annotations

import re
import ssl
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from rota.errors import InvalidInput

_FORM = "use etcd://[user:password@]host:port[,host:port...][?tls=true&ca=FILE&cert=FILE&key=FILE]"
_ENDPOINT = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?", re.ASCII)
_OPTIONS = ("tls", "ca", "cert", "key")
_PORT = 2379


class Address(NamedTuple):
    """What a URL says."""

    endpoints: tuple[str, ...]
    user: str
    password: str
    tls: ssl.SSLContext | None


def address_of(url: str) -> Address:
    """Read a URL, and the certificates that it names."""
    parts = _split(url)
    if parts.scheme != "etcd" or parts.path not in ("", "/") or parts.fragment:
        raise _wrong(_FORM)
    options = _options(parts)
    tls = _tls(options)
    who, _, where = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    if bool(user) != bool(password):
        raise _wrong("a user needs a password, and a password a user")
    scheme = "https" if tls else "http"
    endpoints = tuple(f"{scheme}://{_endpoint(each)}" for each in where.split(","))
    return Address(endpoints, unquote(user), unquote(password), tls)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise _wrong(_FORM) from None


def _endpoint(text: str) -> str:
    found = _ENDPOINT.fullmatch(text)
    if found is None or int(found["port"] or _PORT) not in range(1, 65536):
        raise _wrong(f"an endpoint is host:port; {_FORM}")
    return f"{found['host']}:{found['port'] or _PORT}"


def _options(parts: SplitResult) -> dict[str, str]:
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(pairs)
    if set(options) - set(_OPTIONS):
        raise _wrong(f"this URL takes no other options than {', '.join(_OPTIONS)}")
    if len(options) < len(pairs) or not all(options.values()):
        raise _wrong("each option is given once, with a value")
    if options.get("tls", "true") not in ("true", "false"):
        raise _wrong("tls is true or false")
    return options


def _tls(options: dict[str, str]) -> ssl.SSLContext | None:
    files = options.keys() - {"tls"}
    if options.get("tls", "true" if files else "false") == "false":
        if files:
            raise _wrong(f"tls=false does not go with {', '.join(sorted(files))}")
        return None
    if ("cert" in files) != ("key" in files):
        raise _wrong("cert and key go together")
    try:
        return _context(options.get("ca"), options.get("cert"), options.get("key"))
    except OSError as error:  # an SSLError is one, too
        raise _wrong(f"its certificates cannot be used: {error}") from None


def _context(ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    if cert is not None:
        context.load_cert_chain(cert, key)
    return context


def _wrong(reason: str) -> InvalidInput:
    return InvalidInput.of("coordinator.url", reason)
