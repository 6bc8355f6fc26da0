"""What the runner promises holds without Linux too, but for what needs it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.portable.ground import Ground

ROOT = Path(__file__).resolve().parents[2]
SUITES = ("programs", "python", "timeouts", "between_items", "workers", "http", "output", "context", "app_files")
NEED_LINUX = {
    "exactly_its_environment": "the Python of these tests is started by a shell, which adds a variable",
    "workers_get_nothing_of_it": "the same",
    "running_out_of_memory": "memory is not limited",
    "daemonises": "a process that leaves its group is not found",
    "death_of_the_zygote": "it asks for a PID namespace",
    "line_of_a_gigabyte": "it measures memory by /proc",
}
"""Parts of names of tests that cannot hold, and why."""


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_the_suites_of_the_runner_pass_without_linux(ground: Ground) -> None:
    files = [str(ROOT / "tests" / "execution" / f"test_{name}.py") for name in SUITES]
    chosen = " and ".join(f"not {name}" for name in NEED_LINUX)
    command = ground.command("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, *files)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2000:]
