"""Stores that grow old: figures of one run on one machine, compared with each other.

A figure of a busy machine is void; so each is taken when the machine rests, and again, a few times, until it counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest

from rota.execution.machine_load import MachineLoad
from tests.e2e.rig import Home

LOAD = ("--items", "40000", "--tenants", "50", "--seconds", "0", "--idle-starts", "0")
TRIES = 5
RESTING, REST_S = 0.05, 120
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3 * 3600)]


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def url(request: pytest.FixtureRequest, home: Home) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{home.path}/rota.db"
    else:
        yield request.getfixturevalue(f"{request.param}_url")


def wait_for_rest() -> None:
    """Wait until nobody uses the processors: MariaDB cleans up for a while after a run."""
    load, give_up = MachineLoad(time.monotonic), time.monotonic() + REST_S
    busy = 1.0
    while busy > RESTING and time.monotonic() < give_up:
        time.sleep(1)  # what is measured is this second
        busy = load.cpu()


def items_per_s(home: Home, url: str, *, history: int, nodes: int = 1) -> float:
    for _ in range(TRIES):
        wait_for_rest()
        wanted = ("--store", url, "--history", str(history), "--nodes", str(nodes))
        with home.start("bench", "dispatch", *LOAD, *wanted, "--json") as process:
            assert process.ends(within_s=2 * 3600) == 0, process.log
            figures: dict[str, Any] = json.loads(process.log)
        assert (figures["lost"], figures["doubled"], figures["over_cap"]) == (0, 0, 0)
        print(f"\n{nodes} nodes, {history:,} ended: {figures['items_per_s']:,.0f} items/s {figures['void']}")
        if not figures["void"]:
            return float(figures["items_per_s"])
    pytest.fail("the machine is too busy for figures")


def test_ten_million_ended_items_cost_at_most_a_tenth(home: Home, url: str) -> None:
    young = median(items_per_s(home, url, history=10_000) for _ in range(3))
    old = median(items_per_s(home, url, history=10_000_000) for _ in range(3))
    assert old >= 0.9 * young


def test_the_tenth_run_in_a_row_is_as_fast_as_the_first(home: Home, url: str) -> None:
    figures = [items_per_s(home, url, history=1_000_000) for _ in range(12)]
    assert median(figures[-3:]) >= 0.9 * median(figures[:3])


def test_two_nodes_are_of_use_on_two_cores(home: Home, url: str) -> None:
    """Pairs of runs, one after the other: from one to the next the machine changes least."""
    both = [[items_per_s(home, url, history=100_000, nodes=nodes) for nodes in (1, 2)] for _ in range(5)]
    assert median(two / one for one, two in both) >= 0.8
