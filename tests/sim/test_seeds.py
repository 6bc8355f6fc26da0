"""Three thousand seeds without a violation. They take all processors for some minutes, so that `scripts/test` runs them
by themselves."""

from __future__ import annotations

import time

import pytest

from rota.model.cluster import Placement
from rota.sim.plan import Mode
from rota.sim.verdict import cases, processors, summed, verdicts

SEEDS = 3000


@pytest.mark.timeout(1200)
def test_no_promise_is_broken_over_many_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    found = verdicts(cases(1, None, None), SEEDS, processors(), lambda done: None)
    total = summed(found, time.monotonic() - began)
    shown = "seeds violations seeds_per_min takeovers expired_leases unknown_commits faults void seconds"
    with capsys.disabled():
        print("\n" + ", ".join(f"{name} {getattr(total, name)}" for name in shown.split()))
    assert [f"{it.violations[0]}: {it.case.command}" for it in found if it.violations] == []
    assert total.seeds == SEEDS
    assert {it.placement for it in found} == set(Placement)
    assert {it.mode for it in found} == set(Mode)
    assert all(it.faults >= 5 for it in found)
    assert total.takeovers > SEEDS
    assert total.expired_leases > SEEDS / 4
    assert total.unknown_commits > SEEDS
