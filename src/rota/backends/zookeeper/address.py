"""Where ZooKeeper is and who we are there, read from the URL. Nothing of a password gets into a message."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from rota.errors import InvalidInput

_FORM = (
    "use zookeeper://[user:password@]host:port[,host:port...][/chroot][?ca=FILE&cert=FILE&key=FILE&sasl=digest], "
    "with % for special characters"
)
_HOST = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?", re.ASCII)
_CHROOT = re.compile(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*", re.ASCII)
_OPTIONS = ("ca", "cert", "key", "sasl")
_PORT = 2181


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """What a URL says."""

    hosts: tuple[str, ...]
    chroot: str
    user: str
    password: str = field(repr=False)
    sasl: bool
    tls: ssl.SSLContext | None


def address_of(url: str) -> Address:
    """Read a URL, and the certificates that it names."""
    parts = urlsplit(url)
    if parts.scheme != "zookeeper" or parts.fragment or not _CHROOT.fullmatch(parts.path.rstrip("/")):
        raise _wrong(_FORM)
    options = _options(parts)
    who, _, where = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    if bool(user) != bool(password) or ("sasl" in options and not user):
        raise _wrong("a user needs a password, a password a user, and sasl both")
    return Address(
        hosts=tuple(_host(each) for each in where.split(",")),
        chroot=parts.path.rstrip("/"),
        user=unquote(user),
        password=unquote(password),
        sasl="sasl" in options,
        tls=_tls(options),
    )


def _host(text: str) -> str:
    found = _HOST.fullmatch(text)
    if found is None or int(found["port"] or _PORT) not in range(1, 65536):
        raise _wrong(f"{text!r} is not host:port; {_FORM}")
    return f"{found['host']}:{found['port'] or _PORT}"


def _options(parts: SplitResult) -> dict[str, str]:
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(pairs)
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise _wrong(f"{', '.join(unknown)} cannot be set in this URL; allowed: {', '.join(_OPTIONS)}")
    if len(options) < len(pairs) or not all(options.values()):
        raise _wrong("each option is given once, with a value")
    if options.get("sasl", "digest") != "digest":
        raise _wrong("the only sasl is digest")
    return options


def _tls(options: dict[str, str]) -> ssl.SSLContext | None:
    """Whoever names a certificate wants TLS."""
    ca, cert, key = (options.get(name) for name in ("ca", "cert", "key"))
    if (cert is None) != (key is None):
        raise _wrong("cert and key go together")
    if ca is None and cert is None:
        return None
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(cert, key)
    except OSError as error:  # an SSLError is one, too
        raise _wrong(f"its certificates cannot be used: {error}") from None
    return context


def _wrong(reason: str) -> InvalidInput:
    return InvalidInput.of("coordinator.url", reason)
