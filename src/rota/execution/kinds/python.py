"""Python: a function of an app, or of a module that the node may import, called in a warm worker process."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rota.definitions.report import shown
from rota.execution.kinds.kind import Problems, WorkerFunction, WorkerKind, read_value
from rota.model.value import Json

FUNCTION_MAX = 200

_path = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_function = re.compile(f"{_path}:{_path}")


class PythonKind(WorkerKind):
    """`python: package.module:function` in YAML; in Python, a function that an app decorates."""

    name = "python"
    several_at_a_time = True
    own_workers = False
    sends_config = False

    def config(self, value: object, problems: Problems) -> dict[str, Json] | None:
        return read_value("function", function, value, problems)

    def function(self, config: Mapping[str, Json], apps: Mapping[str, str]) -> WorkerFunction:
        if "function" in config:
            return WorkerFunction(str(config["function"]))
        what = str(config.get("listener") or config.get("handler"))
        if what not in apps:
            raise LookupError(f"this node has no app with {what}")
        return WorkerFunction(what, apps[what])


def function(value: object) -> str:
    """A Python function by name; it is imported where it runs, never here."""
    if not isinstance(value, str) or len(value) > FUNCTION_MAX or not _function.fullmatch(value):
        raise ValueError(f"must be a function like package.module:function, not {shown(value)}")
    return str(value)
