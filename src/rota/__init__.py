"""rota: an elastic, fault-tolerant, distributed job scheduler.

import rota

app = rota.App()

@app.task(cron="0 3 * * *")
def nightly_report(): ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from rota.errors import InvalidInput, NotFound, Refused, RotaError, TaskFailed
from rota.version import __version__

if TYPE_CHECKING:
    from rota.client.app import App
    from rota.client.asynchronous import AsyncClient, RunView
    from rota.client.client import Client
    from rota.client.context import Context, StaleToken, Stopped, Told, current, fence
    from rota.client.task import AsyncTaskFunction, Handle, MapHandle, TaskFunction

__all__ = [
    "App",
    "AsyncClient",
    "AsyncTaskFunction",
    "Client",
    "Context",
    "Handle",
    "InvalidInput",
    "MapHandle",
    "NotFound",
    "Refused",
    "RotaError",
    "RunView",
    "StaleToken",
    "Stopped",
    "TaskFailed",
    "TaskFunction",
    "Told",
    "__version__",
    "current",
    "fence",
]

_HOMES = {
    "App": "app",
    "Client": "client",
    **dict.fromkeys(("AsyncClient", "RunView"), "asynchronous"),
    **dict.fromkeys(("Handle", "MapHandle"), "task"),
    **dict.fromkeys(("AsyncTaskFunction", "TaskFunction"), "task"),
    **dict.fromkeys(("Context", "StaleToken", "Stopped", "Told", "current", "fence"), "context"),
}
"""In which module of the SDK a name is."""


def __getattr__(name: str) -> object:
    """Load what is used of the SDK, when it is used: a node does not need it."""
    if name in _HOMES:
        return getattr(import_module(f"rota.client.{_HOMES[name]}"), name)
    if name == "testing":
        return import_module("rota.testing")
    raise AttributeError(f"module 'rota' has no attribute {name!r}")
