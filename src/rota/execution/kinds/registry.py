"""All kinds of task that this process knows: ours, and those of installed plugins (entry points `rota.kinds`)."""

from __future__ import annotations

from rota.execution.kinds.kind import TaskKind
from rota.plugins import Registry

KINDS: Registry[TaskKind] = Registry(
    "rota.kinds",
    "kind of task",
    {
        "shell": "rota.execution.kinds.shell:ShellKind",
        "python": "rota.execution.kinds.python:PythonKind",
        "http": "rota.execution.kinds.http:HttpKind",
    },
)
