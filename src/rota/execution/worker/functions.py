"""Find the function of a task: in the app's file, in a module that this node may import, or in the plugin of its kind.

Nothing else is called.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rota.client.modules import files_below
from rota.execution.file_versions import file_version
from rota.execution.kinds.kind import FunctionKind
from rota.execution.kinds.registry import KINDS
from rota.execution.worker.call import Caller
from rota.execution.worker_protocol import Setup, TaskFault, WorkerTask
from rota.model.listener import is_listener

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
        return [(file, look) for file in new if (look := file_version(file)) is not None]

    def caller(self, task: WorkerTask) -> Caller:
        """How to call the function of a task. Raises TaskFault, or what importing its module raises."""
        known = self._callers.get(task.number)
        if known is None:
            known = self._callers[task.number] = self._found(task)
        return known

    def _found(self, task: WorkerTask) -> Caller:
        what = task.what
        if isinstance(KINDS.find(task.runner), FunctionKind):
            return Caller(imported(what), of_kind=True)  # the plugin names it, not the user: no list is asked
        if self._setup.app is None:
            return Caller(self._allowed(what))
        if what not in self._own:
            raise TaskFault(
                UNKNOWN, f"{self._setup.app} has no {what}; it has {', '.join(sorted(self._own)) or 'none'}"
            )
        return Caller(self._own[what], listens=is_listener(what))

    def _allowed(self, what: str) -> Callable[..., Any]:
        name = what.partition(":")[0]
        if not any(name == each or name.startswith(f"{each}.") for each in self._setup.modules):
            raise TaskFault(
                UNKNOWN, f"this node may not import {name}; it may import {', '.join(self._setup.modules) or 'nothing'}"
            )
        return imported(what)


def imported(what: str) -> Callable[..., Any]:
    """Import `module:function`. Raises TaskFault, or what importing the module raises."""
    name, _, path = what.partition(":")
    found: Any = importlib.import_module(name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise TaskFault(UNKNOWN, f"the module {name} has no function {path}")
        found = getattr(found, part)
    if not callable(found):
        raise TaskFault(UNKNOWN, f"{what} is not a function")
    return found  # type: ignore[no-any-return]
