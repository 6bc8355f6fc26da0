"""Where etcd is and who we are there, read from the URL."""

from __future__ import annotations

import ssl
from typing import NamedTuple

from rota.server_url import ServerUrl, read_url, tls_context, wrong

_FORM = "use etcd://[user:password@]host:port[,host:port...][?tls=true&ca=FILE&cert=FILE&key=FILE]"
_OPTIONS = ("tls", "ca", "cert", "key")
_PORT = 2379


class EtcdAddress(NamedTuple):
    """What a URL says."""

    endpoints: tuple[str, ...]
    user: str
    password: str
    tls: ssl.SSLContext | None


def address_of(url: str) -> EtcdAddress:
    """Read a URL, and the certificates that it names."""
    found = read_url(url, "etcd", port=_PORT, options=_OPTIONS, form=_FORM)
    if found.path:
        raise wrong(_FORM)
    tls = _tls(found)
    scheme = "https" if tls else "http"
    return EtcdAddress(tuple(f"{scheme}://{host}" for host in found.hosts), found.user, found.password, tls)


def _tls(found: ServerUrl) -> ssl.SSLContext | None:
    """Whoever names a certificate wants TLS."""
    files = found.options.keys() - {"tls"}
    wanted = found.options.get("tls", "true" if files else "false")
    if wanted not in ("true", "false"):
        raise wrong("tls is true or false")
    if wanted == "false" and files:
        raise wrong(f"tls=false does not go with {', '.join(sorted(files))}")
    return tls_context(found.options) if wanted == "true" else None
