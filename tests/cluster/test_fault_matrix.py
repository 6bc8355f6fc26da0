"""The fault matrix: every placement on every pair of store and coordinator meets every fault (P1, P2, P3, P9, P15;
S0.40, S0.48, S3.38 to S3.43, S4.10, S4.11). Nothing is lost, doubled, early, run twice at a time or over a cap.

A sample of it is part of every run of the tests; `make nightly` runs the whole and prints a table.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.cluster.matrix import SESSION_S, Kind, run
from tests.cluster.processes import LEEWAY_S

PAIRS = (("postgres", "zookeeper"), ("postgres", "etcd"), ("postgres", None), ("mariadb", None))
PLACEMENTS = ("claim", "scope", "beat")
LATE_S_MAX = SESSION_S + 1 + LEEWAY_S
"""Whoever dies, hangs or is cut off: what is overdue by a session and a second, anybody fires (docs/failure.md). How
long this machine stood still, by the clock of the process that carries all connections, comes on top."""
RESTARTED = "restart the store"
"""How late slots are then depends on how long the server needs; `test_store_restart.py` counts from when it answers."""


async def judge_run(kind: Kind, folder: Path, only: tuple[str, ...] = ()) -> None:
    outcome = await run(kind, folder, only)
    print(f"\n{kind}\n{outcome.table()}\n  counts {dict(outcome.counts)}")
    assert not outcome.void, f"void: {outcome.void}"
    assert outcome.clean, f"{outcome.verdict.kinds} {outcome.starts.kinds} {outcome.execution} {outcome.surprises[:5]}"
    late_s = {it.fault: it.late_s["max"] for it in outcome.effects if it.fault != RESTARTED}
    bound_s = LATE_S_MAX + outcome.stalled_s
    assert max(late_s.values()) <= bound_s, f"slots were later than {bound_s:.3f} s: {late_s}"


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("kind", "only"),
    [
        (
            Kind(store="postgres", coordinator="zookeeper", placement="claim"),
            ("kill the leader", "restart coordinator"),
        ),
        pytest.param(
            Kind(store="postgres", coordinator="etcd", placement="scope"),
            ("kill the leader", "cut from coordinator"),
            marks=pytest.mark.nightly,
        ),
        (Kind(store="mariadb", coordinator=None, placement="beat"), ("kill the leader", "freeze an agent")),
    ],
    ids=str,
)
async def test_a_sample_of_the_fault_matrix(kind: Kind, only: tuple[str, ...], tmp_path: Path) -> None:
    await judge_run(kind, tmp_path, only)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("pair", "placement"), list(product(PAIRS, PLACEMENTS)), ids=str)
async def test_the_fault_matrix(pair: tuple[str, str | None], placement: str, tmp_path: Path) -> None:
    store, coordinator = pair
    await judge_run(Kind(store=store, coordinator=coordinator, placement=placement), tmp_path)
