"""Find the function of a task: in the app's file, or in a module that this node may import. Nothing else is called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rota.client.modules import files_below
from rota.model.listener import is_listener
from rota.runners.stamps import stamp
from rota.runners.wire import Setup, Task
from rota.runners.worker.call import Caller
from rota.runners.worker.faults import Fault

UNKNOWN = "unknown"


class Functions:
    """What this worker can call."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._callers: dict[int, Caller] = {}
        self._own: Mapping[str, Callable[..., Any]] = {}
        self._folders = [*setup.paths, *([] if setup.app is None else [str(Path(setup.app).resolve().parent)])]
        self._modules = 0
        self._files: set[str] = set()

    def load(self) -> None:
        """Run the app's file, once. Whatever that raises is for the caller to tell."""
        sys.path[:0] = self._setup.paths
        if self._setup.app is None:
            return
        from rota.client import collect  # it brings the whole SDK, which only apps need

        sys.dont_write_bytecode = True
        sys.argv = [self._setup.app]
        self._own = collect.functions(collect.run(self._setup.app))

    def new_files(self) -> list[tuple[str, tuple[int, int, int]]]:
        """The files of the user's modules that were loaded since this was last asked, and how they look."""
        if len(sys.modules) == self._modules:
            return []
        self._modules = len(sys.modules)
        new = [file for file in files_below(self._folders) if file not in self._files]
        self._files.update(new)
        return [(file, look) for file in new if (look := stamp(file)) is not None]

    def caller(self, task: Task) -> Caller:
        """How to call the function of a task. Raises Fault, or what importing its module raises."""
        known = self._callers.get(task.number)
        if known is None:
            known = self._callers[task.number] = self._found(task.what)
        return known

    def _found(self, what: str) -> Caller:
        if self._setup.app is None:
            return Caller(self._imported(what))
        if what not in self._own:
            raise Fault(UNKNOWN, f"{self._setup.app} has no {what}; it has {', '.join(sorted(self._own)) or 'none'}")
        return Caller(self._own[what], listens=is_listener(what))

    def _imported(self, what: str) -> Callable[..., Any]:
        name, _, path = what.partition(":")
        if not any(name == each or name.startswith(f"{each}.") for each in self._setup.modules):
            raise Fault(
                UNKNOWN, f"this node may not import {name}; it may import {', '.join(self._setup.modules) or 'nothing'}"
            )
        found: Any = importlib.import_module(name)
        for part in path.split("."):
            if not hasattr(found, part):
                raise Fault(UNKNOWN, f"the module {name} has no function {path}")
            found = getattr(found, part)
        if not callable(found):
            raise Fault(UNKNOWN, f"{what} is not a function")
        return found  # type: ignore[no-any-return]
