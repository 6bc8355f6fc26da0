"""Boundaries without one of their parts, which the tests of P10 and P3 must notice.

| mutant     | what it lacks                                                                              |
|------------|--------------------------------------------------------------------------------------------|
| no_parent  | nobody dies with the agent: neither by the kernel's signal nor by the end of its sockets    |
| no_switch  | the deadline never comes                                                                    |
"""

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rota.execution.isolation.promises import BoundaryKind
from tests.execution.isolation.rig import KINDS, ROOT, Rig, wait_until

SETTLED_S = 1.5
"""So long after the fault, a whole boundary has been empty for a second."""

Change = tuple[str, str, str]
NO_PARENT: list[Change] = [
    ("kernel.py", "    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)", "    _prctl(_PR_SET_PDEATHSIG, 0)"),
    ("zygote.py", "if message is None:\n                return", "if message is None:\n                signal.pause()"),
    ("supervisor.py", 'if message is None or message["do"] == "kill"', 'if message and message["do"] == "kill"'),
    ("supervisor.py", 'elif message["do"] == "signal"', 'elif message and message["do"] == "signal"'),
]
NO_SWITCH: list[Change] = [
    ("dead_mans_switch.py", "return (self.deadline_ns + hold_ns - boottime_ns()) / 1e9", "return 1000.0"),
]


@pytest.fixture
def mutate(folder: Path) -> Iterator[Callable[[list[Change]], Rig]]:
    rigs: list[Rig] = []

    def build(changes: list[Change]) -> Rig:
        source = folder / "source"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__", "static"))
        for file, right, wrong in changes:
            path = source / "rota" / "execution" / "isolation" / file
            text = path.read_text()
            assert right in text, f"{file} has changed: write its mutant anew"
            path.write_text(text.replace(right, wrong))
        rigs.append(Rig(folder / "rig", source=source))
        return rigs[-1]

    yield build
    for rig in rigs:
        rig.close()
        _end_all_of(folder)


def _end_all_of(folder: Path) -> None:
    """Kill what a mutant has left: nothing else does."""
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in word for word in process.info["cmdline"] or ()):
            with suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_tie_to_the_agent_trees_survive_its_sigkill(
    mutate: Callable[[list[Change]], Rig], kind: BoundaryKind
) -> None:
    rig = mutate(NO_PARENT)
    rig.add("plain")
    rig.add("double_fork")
    rig.start(kind)
    rig.kill()
    time.sleep(SETTLED_S)
    assert len(rig.alive) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_switch_trees_of_a_stopped_agent_go_on(
    mutate: Callable[[list[Change]], Rig], kind: BoundaryKind
) -> None:
    rig = mutate(NO_SWITCH)
    rig.add("plain")
    rig.start(kind, lease_s=0.5)
    rig.signal(signal.SIGSTOP)
    time.sleep(0.5 + SETTLED_S)
    assert len(rig.alive) == 1
    rig.signal(signal.SIGCONT)
    rig.kill()
    wait_until(lambda: not rig.alive, "the tie to the agent still holds")
