"""Loads what a command needs: most of the time that a short command takes."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


def load(module: str) -> ModuleType:
    """Load the module of a command."""
    if module not in sys.modules:
        with loading():
            if not {"rich", "structlog"} & sys.modules.keys():
                _load_structlog()
            importlib.import_module(module)
    return sys.modules[module]


@contextmanager
def loading() -> Iterator[None]:
    """Load modules without the garbage collector, which would walk through them again and again; nor will it later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _load_structlog() -> None:
    """Without rich, which it would load for coloured tracebacks that nothing here prints; who draws tables loads it."""
    sys.modules["rich"] = None  # type: ignore[assignment] # so says Python that a module is not there
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]
