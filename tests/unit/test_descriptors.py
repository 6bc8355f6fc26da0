"""How many files a node may open: by real limits, and on a system that has a lower one of its own."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from rota.errors import InvalidInput
from rota.execution import descriptors

ASK = "from rota.execution.descriptors import raise_limit; print(raise_limit({seats}, 192))"


def raised(soft: int, hard: int, seats: int) -> str:
    command = ["prlimit", f"--nofile={soft}:{hard}", sys.executable, "-c", ASK.format(seats=seats)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("soft", "hard", "seats", "limit"), [(256, 1024, 16, "1024"), (1024, 1024, 16, "1024"), (400, 4096, 900, "4096")]
)
def test_the_soft_limit_is_raised_to_the_hard_one(soft: int, hard: int, seats: int, limit: str) -> None:
    assert raised(soft, hard, seats) == limit


def test_too_few_for_the_seats_are_refused_with_both_numbers() -> None:
    said = raised(256, 1024, 200)
    assert "executor.seats: 200 seats need 1120 open files, and the limit is 1024" in said


class System:
    """One that allows no more than so many, whatever its hard limit says, as macOS does."""

    def __init__(self, most: int) -> None:
        self.soft, self._most = 256, most

    def getrlimit(self, _: int) -> tuple[int, int]:
        return self.soft, resource.RLIM_INFINITY

    def setrlimit(self, _: int, limits: tuple[int, int]) -> None:
        if limits[0] > self._most:
            raise ValueError("current limit exceeds maximum limit")
        self.soft = limits[0]


@pytest.mark.parametrize(("most", "limit"), [(100_000, 65_536), (10_240, 10_240), (400, 384)])
def test_a_system_with_a_lower_limit_of_its_own_gives_what_it_has(
    most: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = System(most)
    monkeypatch.setattr(descriptors.resource, "getrlimit", system.getrlimit)
    monkeypatch.setattr(descriptors.resource, "setrlimit", system.setrlimit)
    assert descriptors.raise_limit(16, 192) == limit
    with pytest.raises(InvalidInput, match=r"need 400320 open files"):
        descriptors.raise_limit(100_000, 192)
