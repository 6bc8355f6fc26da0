"""Variants of placement that a tool has made: the simulation or a test sees each of them, or there is a reason."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.sim.rewrite import drawn, rewritten, variants
from tests.sim.rewritten import QUICK, TRIED

LEAST = 20
"""How many of those that were tried must still be there; when the code has changed so much, draw others."""


def here() -> dict[str, int]:
    return {it.name: number for number, it in enumerate(variants())}


def run(*words: str | int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.sim.rewrite", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_every_variant_differs_from_the_product_and_compiles() -> None:
    found = variants()
    assert len({it.name for it in found}) == len(found) > 500
    for it in found[::25]:
        compile(rewritten(it), it.module, "exec")


def test_a_seed_draws_the_same_variants_again() -> None:
    assert drawn(7, 20) == drawn(7, 20)
    assert len({(it.module, it.where) for it in drawn(7, 20)}) == 20
    assert drawn(7, 20) != drawn(8, 20)


def test_a_change_is_what_its_name_says() -> None:
    swapped = "`jobs // max(schedulers - faults, 1)` with its operands swapped"
    (found,) = [it for it in variants(["rota.core.placement.claim"]) if it.what == swapped]
    space: dict[str, object] = {}
    exec(compile(rewritten(found), "claim", "exec"), space)
    limit = space["limit"]
    assert callable(limit)
    assert limit(2, 8, 1) == 1 + 7 // 2, "8 schedulers for 2 jobs: `limit` says 1"


@pytest.mark.parametrize("name", QUICK)
def test_a_variant_is_seen(name: str) -> None:
    number = here().get(name)
    if number is not None:  # code that has changed since has other variants
        done = run("try", number, TRIED[name].seeds)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in TRIED if name not in QUICK])
def test_a_variant_is_seen_or_explained(name: str) -> None:
    number, fate = here().get(name), TRIED[name]
    if number is None:
        return
    done = run("test", number, fate.test) if fate.test else run("try", number, fate.seeds)
    assert (done.returncode == 0) == (not fate.test and not fate.reason), done.stdout + done.stderr


@pytest.mark.nightly
def test_enough_variants_are_still_there() -> None:
    assert len(TRIED.keys() & here().keys()) >= LEAST
