"""Listeners: the functions of an app that are told about assigned items, and how a node advertises that it has them.

An app is known by its tenant and project (`acme/reports`); its listener `on_start` is advertised as
`listener:acme/reports/on_start`.
"""

from __future__ import annotations

LISTENERS = ("on_start", "on_fail", "on_timeout")
PROJECT = "default"
_PREFIX = "listener:"


def app_name(tenant: str, project: str = PROJECT) -> str:
    """By what name items know an app. Without a project: the app whose listeners are told unless one is named."""
    return f"{tenant}/{project}"


def listener_name(app: str, listener: str) -> str:
    """How a node advertises that an app has `on_start`, `on_fail` or `on_timeout`."""
    return f"{_PREFIX}{app}/{listener}"


def is_listener(handler: str) -> bool:
    return handler.startswith(_PREFIX)


def advertised(handler: str, tenant: str) -> str:
    """What a node must have. Release 0.1 kept listeners without their app: then it is the tenant's own."""
    if not is_listener(handler) or "/" in handler:
        return handler
    return listener_name(app_name(tenant), handler.removeprefix(_PREFIX))


def is_advertised(name: str) -> bool:
    """Whether a text has the form of an advertised listener."""
    parts = name.removeprefix(_PREFIX).split("/")
    return is_listener(name) and len(parts) == 3 and all(parts) and parts[2] in LISTENERS
