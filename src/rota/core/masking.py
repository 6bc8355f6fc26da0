"""Mask: let a text be shown to strangers. Secrets are gone, hosts and addresses have other names, the same ones
everywhere in one answer, so that what belongs together can still be seen."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

HIDDEN = "***"

_SECRET_NAME = re.compile(r"(?i)password|passwd|pwd|secret|token|credential|authorization")
_USER = re.compile(r"(?<=://)\S*@")
_QUERY = re.compile(r"(?i)([?&;][a-z_.-]*(?:password|passwd|pwd|secret|token|key)[a-z_.-]*=)[^&;\s]*")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_URL_HOSTS = re.compile(r"://(?:\S*@)?([^\s/?#]+)")
_ADDRESS = re.compile(r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*)(?![\w])")
_OPEN = ("localhost", "0.0.0.0", "::")  # noqa: S104 - names, nothing is bound
"""What says nothing about where a host is."""


def hosts_in(url: str) -> set[str]:
    """The hosts that a URL names."""
    places = [place for found in _URL_HOSTS.findall(url) for place in found.split(",")]
    return {host_of(place) for place in places} - {""}


def host_of(address: str) -> str:
    """The host of `host:port`, `[v6]:port` or a host alone."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.rpartition(":")[0] if address.count(":") == 1 else address


class Mask:
    """Names for the hosts of one answer."""

    def __init__(self, hosts: Iterable[str]) -> None:
        known = sorted(host for host in set(hosts) if len(host) > 1 and not _is_open(host) and not _is_address(host))
        self._names = {host: f"host-{number}" for number, host in enumerate(known, 1)}
        words = "|".join(re.escape(host) for host in sorted(known, key=len, reverse=True))
        self._hosts = re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])") if known else None
        self._addresses: dict[str, str] = {}

    def value(self, value: Any) -> Any:
        """The same, in lists and objects however deep; what goes by the name of a secret is hidden. The names of fields
        stay: they must be ours."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {name: self._field(str(name), it) for name, it in value.items()}
        return [self.value(it) for it in value] if isinstance(value, list | tuple) else value

    def text(self, text: str) -> str:
        """The same text without secrets, hosts and addresses."""
        text = _QUERY.sub(rf"\1{HIDDEN}", _USER.sub(f"{HIDDEN}@", text))
        text = _MAIL.sub(f"{HIDDEN}@{HIDDEN}", text)
        if self._hosts is not None:
            text = self._hosts.sub(lambda found: self._names[found[0]], text)
        return _ADDRESS.sub(lambda found: self._address(found[0]), text)

    def _field(self, name: str, value: Any) -> Any:
        return HIDDEN if value and isinstance(value, str) and _SECRET_NAME.search(name) else self.value(value)

    def _address(self, text: str) -> str:
        if not _is_address(text) or _is_open(text):
            return text
        return self._addresses.setdefault(text, f"address-{len(self._addresses) + 1}")


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_open(host: str) -> bool:
    return host in _OPEN or (_is_address(host) and ip_address(host).is_loopback)
