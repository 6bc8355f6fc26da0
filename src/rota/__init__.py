"""rota: an elastic, fault-tolerant, distributed job scheduler.

import rota

app = rota.App()

@app.task(cron="0 3 * * *")
def nightly_report(): ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.errors import InvalidInput, RotaError

if TYPE_CHECKING:
    from rota.client.app import App

__all__ = ["App", "InvalidInput", "RotaError", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Load the SDK when it is used: a node does not need it."""
    if name == "App":
        from rota.client.app import App

        return App
    raise AttributeError(f"module 'rota' has no attribute {name!r}")
