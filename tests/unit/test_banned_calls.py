"""Time, chance, identity and the environment enter the product through few doors: nobody else may touch them.

The rest asks the `Clock` port for time, sleep and randomness, and reads settings from `Config`; so the simulator can
own all of them. A mention is enough: `default_factory=uuid4` is as bad as calling it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "rota"

# The file below src/rota, what it may use, and why.
ALLOWED: dict[str, tuple[set[str], str]] = {
    "config.py": ({"os.environ"}, "the only reader of the environment"),
    "clock.py": (
        {
            "datetime.datetime.now",
            "time.monotonic",
            "time.clock_gettime",
            "asyncio.sleep",
            "random.random",
            "secrets.token_hex",
        },
        "the Clock port's real implementation",
    ),
    "storage/sql/sqlite.py": ({"time.sleep"}, "the thread of an SQLite file waits there for another process"),
    "bench/fleet.py": ({"os.environ"}, "nodes of a benchmark get the settings of the process that starts them"),
    "bench/noop.py": ({"time.time_ns"}, "user code, as far as the product is concerned: it runs in a worker"),
    "execution/worker/clock.py": ({"time.monotonic"}, "the clock of a worker process, into which no port reaches"),
    "execution/worker/leftovers.py": (
        {"os.environ", "os.environb", "time.tzname", "time.timezone", "time.tzset"},
        "what a task has changed in its process is put back after it",
    ),
    "execution/worker/__main__.py": ({"os.environ"}, "a worker takes the number of its channel from its environment"),
    "virtual.py": ({"random.Random", "asyncio.sleep"}, "the Clock port in virtual time, seeded"),
    "system.py": ({"time.CLOCK_BOOTTIME", "time.CLOCK_MONOTONIC"}, "which clock there is depends on the system"),
    "execution/isolation/dead_mans_switch.py": (
        {"time.clock_gettime_ns"},
        "the dead-man's switch works without an agent, and so without its clock",
    ),
    "execution/isolation/waiting.py": (
        {"time.monotonic", "time.time"},
        "bounded waits for the kernel, and when a process has started, in processes without an agent",
    ),
    "execution/isolation/records.py": (
        {"secrets.token_hex"},
        "a name of processes that outlive the one that made it up",
    ),
    "sim/loop.py": ({"random.Random"}, "the order of callbacks, seeded"),
}

# What is banned, a whole module with a star, and what to use instead.
BANNED: dict[str, str] = {
    "datetime.datetime.now": "the Clock port",
    "datetime.datetime.utcnow": "the Clock port",
    "datetime.datetime.today": "the Clock port",
    "datetime.date.today": "the Clock port",
    "time.*": "the Clock port",
    "asyncio.sleep": "the Clock port",
    "random.*": "the Clock port",
    "secrets.*": "the Clock port",
    "uuid.*": "the Clock port",
    "os.urandom": "the Clock port",
    "os.getrandom": "the Clock port",
    "os.environ": "rota.config",
    "os.environb": "rota.config",
    "os.getenv": "rota.config",
    "os.getenvb": "rota.config",
}

# Of a banned module, what depends on its arguments only.
PURE = {"uuid.UUID", "uuid.uuid3", "uuid.uuid5"}


def test_nothing_reads_time_chance_or_the_environment_past_its_door() -> None:
    wrong = [
        fault
        for path in sorted(SOURCE.rglob("*.py"))
        for fault in faults(path.relative_to(SOURCE).as_posix(), path.read_text())
    ]
    assert wrong == []


def test_every_exemption_is_still_needed() -> None:
    unused = [
        f"{path}: {name}"
        for path, (names, _) in ALLOWED.items()
        if (SOURCE / path).exists()
        for name in names - {used for _, used in banned_names(ast.parse((SOURCE / path).read_text()))}
    ]
    assert unused == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import datetime\ndatetime.datetime.now()", "datetime.datetime.now"),
        ("import datetime as dt\ndt.datetime.now(dt.UTC)", "datetime.datetime.now"),
        ("from datetime import datetime\ndatetime.utcnow()", "datetime.datetime.utcnow"),
        ("from datetime import datetime as moment\nmoment.today()", "datetime.datetime.today"),
        ("from datetime import date\ndate.today()", "datetime.date.today"),
        ("import time\ntime.time()", "time.time"),
        ("import time as t\nstart = t.monotonic", "time.monotonic"),
        ("from time import perf_counter", "time.perf_counter"),
        ("from time import sleep as pause", "time.sleep"),
        ("def f():\n    import time\n    time.sleep(1)", "time.sleep"),
        ("import random\nrandom.random()", "random.random"),
        ("from random import Random", "random.Random"),
        ("import uuid\nuuid.uuid4()", "uuid.uuid4"),
        ("from uuid import uuid1 as name", "uuid.uuid1"),
        ("import secrets\nsecrets.token_hex()", "secrets.token_hex"),
        ("import os\nos.urandom(8)", "os.urandom"),
        ("from os import urandom", "os.urandom"),
        ("import os\nos.getrandom(8)", "os.getrandom"),
        ("import asyncio\nasync def f():\n    await asyncio.sleep(1)", "asyncio.sleep"),
        ("from asyncio import sleep", "asyncio.sleep"),
        ("from asyncio import tasks\nasync def f():\n    await tasks.sleep(1)", "asyncio.sleep"),
        ("import os\nos.environ['HOME']", "os.environ"),
        ("import os.path\nos.environ.get('HOME')", "os.environ"),
        ("from os import environ", "os.environ"),
        ("import os\nos.getenv('HOME')", "os.getenv"),
        ("from os import getenv as setting", "os.getenv"),
        ("from time import *", "time.*"),
        ("from os import *", "os.*"),
        ("import time\ngetattr(time, 'time')()", "time"),
        ("import random as chance\nroll = chance", "random"),
    ],
)
def test_each_banned_form_is_caught(source: str, found: str) -> None:
    assert [name for _, name in banned_names(ast.parse(source))] == [found]


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import time\ntime.fromisoformat('12:00')",
        "from datetime import UTC, datetime\ndatetime.fromtimestamp(0, UTC)",
        "import asyncio\nasyncio.timeout(1)",
        "import os\nos.getpid()",
        "from uuid import UUID\nUUID(int=0)",
        "import uuid\nuuid.uuid5(uuid.UUID(int=0), 'x')",
        "def f(clock, time):\n    return clock.now() + time.monotonic()",
        "class Clock:\n    def now(self): ...\n    def sleep(self): ...",
    ],
)
def test_what_only_looks_like_it_passes(source: str) -> None:
    assert list(banned_names(ast.parse(source))) == []


def test_a_fault_names_the_place_and_the_remedy() -> None:
    source = "import os\nimport time\nos.environ\ntime.time()"
    assert faults("core/fire.py", source) == [
        "core/fire.py:3: os.environ is banned here; use rota.config",
        "core/fire.py:4: time.time is banned here; use the Clock port",
    ]
    assert faults("config.py", source) == ["config.py:4: time.time is banned here; use the Clock port"]


def faults(path: str, source: str) -> list[str]:
    """What one file (its path below src/rota) uses and may not, as sentences."""
    allowed, _ = ALLOWED.get(path, (set(), ""))
    return [
        f"{path}:{line}: {name} is banned here; use {remedy(name)}"
        for line, name in banned_names(ast.parse(source))
        if name not in allowed
    ]


def banned_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each banned thing that the text mentions, by the full name of where it comes from, in the order of the lines."""
    return iter(sorted({*_banned_imports(tree), *_banned_mentions(tree)}))


def _banned_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = (canonical(f"{node.module}.{alias.name}") for alias in node.names)
            yield from ((node.lineno, name) for name in names if remedy(name))


def _banned_mentions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    meanings = _meanings(tree)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name | ast.Attribute) or (name := _full_name(node, meanings)) is None:
            continue
        whole_module_passed_on = id(node) not in inner and f"{name}.*" in BANNED
        if whole_module_passed_on or remedy(name):
            yield node.lineno, name


def _meanings(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for, in whatever scope: a name means one thing in one file."""
    meanings = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                meanings[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and not node.level:
            # A banned thing is reported where it is imported, so its uses need no second report.
            names = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            meanings |= {short: name for short, name in names.items() if not remedy(canonical(name))}
    return meanings


def _full_name(node: ast.expr, meanings: dict[str, str]) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in meanings:
        return None
    return canonical(".".join([meanings[node.id], *reversed(parts)]))


def canonical(name: str) -> str:
    """The one name that the table knows a thing by."""
    return name.replace("asyncio.tasks.", "asyncio.", 1)


def remedy(name: str) -> str | None:
    """What to use instead of a banned thing; None if it is not banned."""
    if name in PURE:
        return None
    module, _, last = name.rpartition(".")
    if last == "*":
        return next((instead for banned, instead in BANNED.items() if banned.startswith(f"{module}.")), None)
    return BANNED.get(name) or BANNED.get(f"{module}.*")
