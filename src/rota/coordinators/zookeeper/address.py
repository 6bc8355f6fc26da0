"""Where ZooKeeper is and who we are there, read from the URL."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field

from rota.server_url import read_url, tls_context, wrong

_FORM = (
    "use zookeeper://[user:password@]host:port[,host:port...][/chroot][?ca=FILE&cert=FILE&key=FILE&sasl=digest], "
    "with % for special characters"
)
_CHROOT = re.compile(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*", re.ASCII)
_OPTIONS = ("ca", "cert", "key", "sasl")
_PORT = 2181


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperAddress:
    """What a URL says."""

    hosts: tuple[str, ...]
    chroot: str
    user: str
    password: str = field(repr=False)
    sasl: bool
    tls: ssl.SSLContext | None


def address_of(url: str) -> ZooKeeperAddress:
    """Read a URL, and the certificates that it names: whoever names one wants TLS."""
    found = read_url(url, "zookeeper", port=_PORT, options=_OPTIONS, form=_FORM)
    if not _CHROOT.fullmatch(found.path):
        raise wrong(_FORM)
    sasl = found.options.get("sasl")
    if sasl not in (None, "digest"):
        raise wrong("the only sasl is digest")
    if sasl and not found.user:
        raise wrong("sasl needs a user and a password")
    return ZooKeeperAddress(
        hosts=found.hosts,
        chroot=found.path,
        user=found.user,
        password=found.password,
        sasl=sasl is not None,
        tls=tls_context(found.options) if found.options.keys() & {"ca", "cert", "key"} else None,
    )
