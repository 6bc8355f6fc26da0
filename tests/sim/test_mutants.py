"""The simulation finds every known-wrong variant of the product, and names it by what it breaks."""

from __future__ import annotations

from itertools import islice

import pytest

from rota.sim.verdict import cases, verdict
from tests.sim.mutants import MUTANTS, Mutant


@pytest.mark.parametrize(
    "mutant", [pytest.param(it, marks=[pytest.mark.nightly] * it.is_slow, id=str(it)) for it in MUTANTS]
)
@pytest.mark.timeout(300)
def test_a_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.patch(monkeypatch)
    found: set[str] = set()
    for case in islice(cases(1, mutant.placement, mutant.mode), mutant.seeds_max):
        found |= {it.kind for it in verdict(case).violations}
        if found & set(mutant.shows_as):
            return
    pytest.fail(f"{mutant} passed for {mutant.seeds_max} seeds; other violations: {sorted(found)}")
