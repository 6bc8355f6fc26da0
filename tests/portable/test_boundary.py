"""What a process group promises without Linux, as `promises.py` says it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from rota.execution.isolation.promises import PROMISES, BoundaryKind
from tests.execution.isolation.rig import SHAPES, SITE, STAY_IN_GROUP, Rig, wait_until
from tests.portable.ground import Ground

ROOT = Path(__file__).resolve().parents[2]
AGENT = str(ROOT / "tests" / "execution" / "isolation" / "agent.py")
SWEEP = """
import json, sys
from pathlib import Path
from rota.execution.isolation.sweeping import sweep_now
swept = sweep_now(Path(sys.argv[1]))
print(json.dumps([[former.empty, former.trees, former.why] for former in swept.formers]))
"""


class PlainRig(Rig):
    """A rig whose agent has no Linux."""

    def __init__(self, folder: Path, ground: Ground) -> None:
        super().__init__(folder)
        self._ground = ground

    def _spawn(self, plan: Path, log: IO[bytes]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._ground.command("-S", AGENT, str(plan)),
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )

    def sweep(self) -> Any:
        command = self._ground.command("-S", "-c", SWEEP, str(self.state_dir))
        done = subprocess.run(command, env=self._environment(), stdout=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout)

    def _environment(self) -> dict[str, str]:
        return {"PYTHONPATH": f"{ROOT / 'src'}:{SITE}", "PATH": os.defpath, "PROBE_AGENT": self.mark}

    def staying(self) -> set[str]:
        """The living trees that nobody leaves."""
        return {label for label in self.alive if label.partition("-")[0] in STAY_IN_GROUP}

    def leaving(self) -> set[str]:
        return {label for label in self.alive if label.partition("-")[0] in ("setsid", "double_fork")}


@pytest.fixture
def rig(tmp_path: Path, ground: Ground) -> Iterator[PlainRig]:
    rig = PlainRig(tmp_path / "rig", ground)
    for shape in SHAPES:
        rig.add(shape)
    yield rig
    rig.close()


def test_the_strongest_boundary_without_linux_is_a_process_group(rig: PlainRig) -> None:
    rig.start(None)
    assert rig.facts["kind"] == BoundaryKind.GROUP
    assert [line.kind for line in PROMISES if not line.linux] == [BoundaryKind.GROUP]


def test_those_in_the_group_are_gone_when_the_agent_is_killed(rig: PlainRig) -> None:
    rig.start(BoundaryKind.GROUP)
    assert (len(rig.staying()), len(rig.leaving())) == (3, 2)
    rig.kill()
    wait_until(lambda: not rig.staying(), "those in their group are gone", lambda: rig.alive)
    assert len(rig.leaving()) == 2


def test_the_agent_kills_those_in_the_group_when_the_supervisor_is_killed(rig: PlainRig) -> None:
    rig.start(BoundaryKind.GROUP)
    rig.kill_supervisors()
    wait_until(lambda: not rig.staying(), "those in their group are gone", lambda: rig.alive)
    assert all(rig.next_line()["lost"] for _ in rig.trees)
    assert len(rig.leaving()) == 2


def test_a_sweep_kills_those_in_a_group_whose_agent_and_supervisor_were_killed(rig: PlainRig) -> None:
    rig.start(BoundaryKind.GROUP)
    rig.signal(signal.SIGSTOP)  # so that it does not see their end
    rig.kill_supervisors()
    rig.kill()
    assert len(rig.staying()) == 3
    [(empty, trees, why)] = rig.sweep()
    assert rig.staying() == set()
    assert (empty, trees) == (False, len(rig.trees))
    assert "a process group does not hold those who leave it" in why


def test_a_sweep_leaves_a_living_agent_alone(rig: PlainRig) -> None:
    rig.start(BoundaryKind.GROUP)
    assert rig.sweep() == []
    assert len(rig.staying()) == 3


def test_those_in_the_group_are_gone_at_the_deadline_when_the_agent_is_frozen(rig: PlainRig) -> None:
    rig.start(BoundaryKind.GROUP, lease_s=8.0)
    rig.signal(signal.SIGSTOP)
    wait_until(lambda: not rig.staying(), "the switches have acted", lambda: rig.alive)
    rig.signal(signal.SIGCONT)
    told = [rig.next_line() for _ in rig.trees]
    assert [(line["switch"], line["lost"]) for line in told] == [(True, False)] * len(rig.trees)


def test_process_trees_without_linux_starts_refuses_kills_and_leaks_nothing(tmp_path: Path, ground: Ground) -> None:
    script = str(Path(__file__).with_name("process_trees.py"))
    command = ground.command(script, str(tmp_path / "state"), sys.executable)
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts.pop("refusal").startswith("one: cannot execute '/no/üüü")
    assert facts == {
        "open": ["0", "1", "2"],
        "open with a channel": ["0", "1", "2", "3"],
        "limit": 500,
        "many": ["x\n"] * 20,
        "killed": signal.SIGKILL,
        "killed while stopped": signal.SIGKILL,
        "zygote": ["again\n", "True", "9"],
        "leaked": 0,
        "records": 1,
        "left": 0,
    }


def test_without_a_ps_that_can_be_read_a_node_says_why_it_starts_nothing(tmp_path: Path, ground: Ground) -> None:
    ground.break_ps()
    code = "from rota.execution.isolation.availability import BoundaryKind, why_not; print(why_not(BoundaryKind.GROUP))"
    done = subprocess.run(ground.command("-c", code), capture_output=True, text=True, check=True)
    assert done.stdout == "/bin/ps does not tell of this process when it started\n"
