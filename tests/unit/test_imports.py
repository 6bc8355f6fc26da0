"""Imports point one way: this table is the architecture, and whoever breaks it is told which line it was.

A package imports itself and what its line lists, wherever in the file the import stands. A name with a dot lets only
that module in; a line of its own says what one module may import besides the rest of its package. Only the command
line lists `sim`; only the places that put a process together, `wiring`, `sim` and the testing kit, list adapters; only
the command line and the client list `wiring`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "rota"

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "logger": set(),
    "model": {"errors", "logger"},
    "core": {"model", "errors"},
    "transactions": {"core", "model", "errors"},
    "ports": {"transactions", "model", "errors"},
    "settings": {"model"},
    "config": {"settings", "model", "errors"},
    "system": set(),
    "waiting": set(),
    "clock": {"system"},
    "server_url": {"errors"},
    "storage": {"coordinators.memory", "server_url", "system", "transactions", "ports", "model", "errors", "logger"},
    "coordinators": {"server_url", "ports", "model", "errors", "logger"},
    "coordinators.memory": {"ports", "model", "errors"},
    "coordinators.sql": {"storage.sql", "ports", "model", "errors"},
    "coordinators.recipes": {"ports", "model", "errors"},
    "plugins": {"errors"},
    "execution": {"plugins", "system", "waiting", "ports", "model", "errors", "logger"},
    "execution.kinds": {
        "plugins",
        "definitions.report",
        "definitions.characters",
        "definitions.params",
        "model",
        "errors",
    },
    "execution.worker": {"client.context", "client.collect", "client.modules", "model", "errors"},
    "alarms": {"loops", "transactions", "ports", "model", "errors", "logger"},
    "alarms.rules": {"model", "errors"},
    "alarms.words": {"model", "errors"},
    "alarms.channels": {
        "plugins",
        "execution",
        "definitions.requests",
        "definitions.characters",
        "definitions.report",
        "ports",
        "model",
        "errors",
    },
    "loops": {
        "coordinators.recipes",
        "waiting",
        "transactions",
        "core",
        "ports",
        "model",
        "errors",
        "config",
        "logger",
    },
    "definitions": {"alarms.channels", "execution.kinds", "core", "model", "errors"},
    "definitions.report": {"errors"},
    "definitions.characters": {"errors"},
    "definitions.requests": {"model", "errors"},
    "definitions.params": {"model"},
    "client": {"definitions", "control", "core", "model", "errors"},
    "client.asynchronous": {"control", "definitions", "config", "wiring", "ports", "model", "errors"},
    "client.engine": {
        "virtual",
        "storage.memory",
        "node",
        "loops",
        "config",
        "control",
        "execution.worker_protocol",
        "execution.kinds",
        "execution.worker",
        "ports",
        "model",
        "errors",
    },
    "testing": {"client"},
    "virtual": {"ports", "model"},
    "control": {
        "alarms.rules",
        "coordinators.recipes",
        "definitions",
        "transactions",
        "core",
        "ports",
        "model",
        "errors",
    },
    "rest": {"control", "config", "model", "errors", "logger"},
    "version": set(),
    "node": {
        "version",
        "alarms",
        "loops",
        "control",
        "definitions",
        "core",
        "ports",
        "config",
        "model",
        "errors",
    },
    "wiring": {
        "node",
        "rest",
        "version",
        "alarms",
        "storage",
        "coordinators",
        "execution",
        "loops",
        "control",
        "definitions",
        "core",
        "ports",
        "config",
        "clock",
        "model",
        "errors",
    },
    "bench": {
        "execution.machine_load",
        "control",
        "client",
        "loops",
        "config",
        "transactions",
        "core",
        "ports",
        "model",
        "errors",
    },
    "cli": {
        "control",
        "settings",
        "config",
        "wiring",
        "loops.node_process",
        "bench",
        "sim",
        "core.preview",
        "core.masking",
        "ports",
        "model",
        "errors",
        "logger",
    },
    "sim": {
        "virtual",
        "node",
        "loops",
        "control",
        "definitions",
        "core",
        "ports",
        "config",
        "model",
        "errors",
        "storage.memory",
        "transactions",
        "coordinators.memory",
    },
    "__main__": {"cli"},
    "__init__": {"version", "client", "definitions", "model", "errors"},
}


def test_every_import_of_the_product_points_the_right_way() -> None:
    wrong = [
        fault for path in sorted(SOURCE.rglob("*.py")) for fault in faults(path.relative_to(SOURCE), path.read_text())
    ]
    assert wrong == []


def test_the_table_has_no_circle() -> None:
    reachable = {package: reach(package) for package in MAY_IMPORT}
    assert [package for package, others in reachable.items() if package in others] == []


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("core/fire.py", "import rota.ports", "core/fire.py:1: core must not import rota.ports"),
        ("core/fire.py", "from rota.ports import Store", "core/fire.py:1: core must not import rota.ports.Store"),
        ("core/fire.py", "from rota import ports", "core/fire.py:1: core must not import rota.ports"),
        ("core/fire.py", "from .. import ports", "core/fire.py:1: core must not import rota.ports"),
        ("core/fire.py", "from ..ports import Store", "core/fire.py:1: core must not import rota.ports.Store"),
        ("core/fire.py", "def f():\n    import rota.ports", "core/fire.py:2: core must not import rota.ports"),
        ("storage/sql/x.py", "import rota.core.fire", "storage/sql/x.py:1: storage must not import rota.core.fire"),
        ("cli/main.py", "from rota.loops import member", "cli/main.py:1: cli must not import rota.loops.member"),
        ("loops/node_process.py", "import rota.sim", "loops/node_process.py:1: loops must not import rota.sim"),
        ("model/job.py", "from rota import App", "model/job.py:1: model must not import rota.App"),
        ("model/job.py", "import rota", "model/job.py:1: model must not import rota"),
        ("client/app.py", "import rota.wiring", "client/app.py:1: client must not import rota.wiring"),
        ("extras/x.py", "", "extras/x.py: 'extras' has no line in MAY_IMPORT; add one that says what it may import"),
    ],
)
def test_a_wrong_import_is_found_in_every_form(path: str, source: str, complaint: str) -> None:
    assert faults(Path(path), source) == [complaint]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("core/fire.py", "import datetime\nfrom rota.model.job import Job\nfrom rota.core import owed"),
        ("core/fire.py", "from . import owed\nfrom ..model import job"),
        ("core/__init__.py", "from .fire import fire"),
        ("cli/main.py", "from rota.loops.node_process import run\nfrom rota.loops import node_process"),
        ("wiring.py", "from rota.storage.sql import store"),
        ("client/asynchronous.py", "from rota.wiring import open_store\nfrom rota.client.app import App"),
        ("__init__.py", "from rota.client import App"),
    ],
)
def test_a_right_import_passes(path: str, source: str) -> None:
    assert faults(Path(path), source) == []


def faults(path: Path, source: str) -> list[str]:
    """The imports in one file (its path below src/rota) that the table does not allow, as sentences."""
    package = line_of(".".join(path.with_suffix("").parts))
    if package not in MAY_IMPORT:
        return [f"{path}: {package!r} has no line in MAY_IMPORT; add one that says what it may import"]
    allowed = {package.partition(".")[0], *MAY_IMPORT[package]}
    return [
        f"{path}:{line}: {package} must not import {name}"
        for line, name in imported(path, ast.parse(source))
        if not any(f"{name}.".startswith(f"rota.{each}.") for each in allowed)
    ]


def imported(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each module of ours that the file imports, or the name that it takes from one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{origin(path, node)}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in dict.fromkeys(names) if name == "rota" or name.startswith("rota."))


def origin(path: Path, node: ast.ImportFrom) -> str:
    """The full name of the module that a from-import takes from, also when it is relative."""
    if not node.level:
        return node.module or ""
    above = ("rota", *path.parent.parts)
    return ".".join([*above[: len(above) - node.level + 1], *([node.module] if node.module else [])])


def reach(package: str) -> set[str]:
    """All that a package can come to import, over any number of steps."""
    found: set[str] = set()
    waiting = [package]
    while waiting:
        for each in MAY_IMPORT[line_of(waiting.pop())] - found:
            found.add(each)
            waiting.append(each)
    return {line_of(each) for each in found}


def line_of(module: str) -> str:
    """Which line of the table a module goes by: its own, or that of the nearest package around it."""
    while module not in MAY_IMPORT and "." in module:
        module = module.rpartition(".")[0]
    return module


def test_stores_know_no_policy() -> None:
    """What follows from a policy is decided in `core/`, and asked for in `transactions/`."""
    policies = {"OverlapPolicy", "OnExhausted", "MisfirePolicy", "Misfire", "Retry"}
    found = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path in sorted((SOURCE / "storage").rglob("*.py"))
        for name in policies & {it.id for it in ast.walk(ast.parse(path.read_text())) if isinstance(it, ast.Name)}
    ]
    assert found == []
