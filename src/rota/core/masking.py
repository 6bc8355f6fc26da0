"""Mask secrets, so that a text can be shown to others.

`without_passwords` is for people who may know the hosts. `Mask` is for strangers: secrets are gone, hosts and addresses
have other names, the same ones everywhere in one answer, so that what belongs together can still be seen.

Texts come from anywhere, so everything here takes time in proportion to their length: a pattern begins only where the
run of its first characters begins, and what it repeats is possessive or bounded. Values are masked before they are
encoded: a pattern that works on JSON text cannot know where a value ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Any

HIDDEN = "***"

_SECRET_NAME = re.compile(r"(?i)password|passwd|pwd|secret|token|credential|authorization")
_SECRET_KEY = re.compile(r"(?i)password|passwd|pwd|secret|token|key")
_WORD = re.compile(r"\S++")
_QUERY = re.compile(r"([?&;]([\w.-]{1,100}+)=)[^&;\s]*+")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++")
_PLACES = re.compile(r"[^/?#]*+")
_ADDRESS = re.compile(r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}(?!\w)|[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:.]{1,43})")
_OPEN = ("localhost", "0.0.0.0", "::")  # noqa: S104 - names, nothing is bound
"""What says nothing about where a host is."""


def hosts_in(url: str) -> set[str]:
    places: list[str] = []
    for word in url.split():
        _, mark, rest = word.partition("://")
        found = _PLACES.match(rest.rpartition("@")[2]) if mark else None
        places += found[0].split(",") if found else []
    return {host_of(place) for place in places} - {""}


def without_passwords(text: str) -> str:
    """Return the text without the passwords and the secret query values of the URLs in it."""
    return _hide_queries(_in_urls(text, _password_hidden))


def is_secret_name(name: str) -> bool:
    """True if the value of a field or setting of this name must not be shown."""
    return _SECRET_NAME.search(name) is not None


def host_of(address: str) -> str:
    """Return the host of `host:port`, `[v6]:port` or a host alone."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.rpartition(":")[0] if address.count(":") == 1 else address


class Mask:
    """Replaces the hosts of one answer, each by the same name everywhere."""

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
        """Return the text without secrets, hosts and addresses."""
        text = _hide_queries(_in_urls(text, lambda _: HIDDEN))
        text = _MAIL.sub(f"{HIDDEN}@{HIDDEN}", text)
        if self._hosts is not None:
            text = self._hosts.sub(lambda found: self._names[found[0]], text)
        return _ADDRESS.sub(lambda found: self._address(found[0]), text)

    def _field(self, name: str, value: Any) -> Any:
        return HIDDEN if value and isinstance(value, str) and is_secret_name(name) else self.value(value)

    def _address(self, text: str) -> str:
        """The same with another name for the address that it begins with; a sentence may end behind it."""
        for address in (text, text.rstrip("."), text.rstrip(".:")):
            if _is_address(address):
                if _is_open(address):
                    return text
                name = self._addresses.setdefault(address, f"address-{len(self._addresses) + 1}")
                return name + text[len(address) :]
        return text


def _in_urls(text: str, shown: Callable[[str], str]) -> str:
    """The same text with another user part in each word that has a URL: all from its `://` to the last `@`, because
    people write passwords with any sign in them."""

    def masked(found: re.Match[str]) -> str:
        scheme, mark, rest = found[0].partition("://")
        user, at, place = rest.rpartition("@")
        return f"{scheme}{mark}{shown(user)}{at}{place}" if mark and at else found[0]

    return _WORD.sub(masked, text)


def _password_hidden(user: str) -> str:
    name, mark, _ = user.partition(":")
    return f"{name}{mark}{HIDDEN}" if mark else user


def _hide_queries(text: str) -> str:
    return _QUERY.sub(lambda found: found[1] + HIDDEN if _SECRET_KEY.search(found[2]) else found[0], text)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_open(host: str) -> bool:
    return host in _OPEN or (_is_address(host) and ip_address(host).is_loopback)
