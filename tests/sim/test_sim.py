"""The same seed twice, shrinking, and the command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

from rota.model.cluster import Placement
from rota.sim.plan import CALM_S, SECONDS, FaultKind, Mode, draw
from rota.sim.verdict import Case, Verdict, cases, shrunk, smallest, summed, verdict
from tests.sim.mutants import has_no_dead_mans_switch

ROTA = str(Path(sys.executable).with_name("rota"))


@pytest.mark.parametrize("seed", range(100, 106))
def test_the_same_seed_gives_the_same_hash_twice_and_another_one_another(seed: int) -> None:
    one, other = (next(cases(it, None, None)) for it in (seed, seed + 6))
    assert verdict(one).hash == verdict(one).hash != verdict(other).hash


def test_the_same_seeds_give_the_same_hash_in_other_processes() -> None:
    """However the process orders its sets."""

    def hash_of(hash_seed: str, *more: str) -> str:
        return str(rota_sim("--seeds", "9", "--seed", "200", *more, hash_seed=hash_seed)["hash"])

    assert hash_of("1") == hash_of("2") == hash_of("3", "--jobs", "2")


def rota_sim(*arguments: str, hash_seed: str = "0", code: int = 0) -> dict[str, object]:
    done = subprocess.run(
        [ROTA, "sim", "run", *arguments, "--json"],
        capture_output=True,
        text=True,
        env={"PYTHONHASHSEED": hash_seed, "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == code, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_the_answer_is_one_flat_object() -> None:
    answer = rota_sim("--seeds", "3", "--placement", "claim", "--mode", "liveness")
    wanted = "seeds violations seeds_per_min takeovers expired_leases unknown_commits faults void"
    assert set(wanted.split()) <= set(answer)
    assert answer["seeds"] == 3
    assert answer["violations"] == 0
    assert not any(isinstance(value, dict | list) for value in answer.values())


def test_one_seed_can_be_traced_and_cut_down() -> None:
    whole = rota_sim("--seed", "7", "--placement", "claim", "--mode", "safety", "--trace")
    part = rota_sim("--seed", "7", "--placement", "claim", "--mode", "safety", "--only", "0,2")
    assert whole["hash"] == verdict(next(cases(7, Placement.CLAIM, Mode.SAFETY))).hash != part["hash"]
    assert whole["scenario"]["faults"][2] == part["scenario"]["faults"][1]  # type: ignore[index]
    assert len(whole["trace"]) > 100  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [["--only", "99", "--seed", "1"], ["--only", "x", "--seed", "1"], ["--trace"]])
def test_wrong_input_is_told(wrong: Sequence[str]) -> None:
    done = subprocess.run([ROTA, "sim", *wrong], capture_output=True, text=True)
    assert done.returncode == 2
    assert "error: " in done.stderr


@pytest.mark.parametrize("mode", list(Mode))
def test_a_plan_has_what_it_promises(mode: Mode) -> None:
    for seed in range(300):
        scenario = draw(seed, Placement.CLAIM, mode)
        assert scenario.nodes >= 3
        assert len(scenario.faults) >= 5
        last_s = CALM_S if mode is Mode.LIVENESS else SECONDS
        passing = [it for it in scenario.faults if it.kind is not FaultKind.DRAIN]  # some are drained for good
        assert all(0 <= it.at_s <= it.until_s <= last_s + 1e-6 for it in passing)
        assert len(scenario.skews_s) == scenario.nodes + 1
        assert all(abs(it.much) <= 0.01 for it in scenario.faults if it.kind is FaultKind.DRIFT)
    kinds = {it.kind for seed in range(300) for it in draw(seed, Placement.CLAIM, mode).faults}
    assert kinds == set(FaultKind)


def test_the_smallest_part_that_still_fails_is_found() -> None:
    tried: list[Sequence[int]] = []

    def fails(parts: Sequence[int]) -> bool:
        tried.append(parts)
        return {3, 11} <= set(parts)

    assert list(smallest(range(16), fails)) == [3, 11]
    assert len(tried) < 60


def test_a_failing_plan_is_shrunk_to_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    has_no_dead_mans_switch(monkeypatch)
    failing = next(it for case in islice(cases(1, None, None), 60) if kinds_of(it := verdict(case)) & {"two_attempts"})
    scenario = draw(*failing.case)
    kept = shrunk(scenario, "two_attempts")
    assert 1 <= len(kept) < len(scenario.faults)
    assert any(scenario.faults[n].kind in HIDES_A_NODE for n in kept)


HIDES_A_NODE = {
    FaultKind.PAUSE_AGENT,
    FaultKind.PAUSE_NODE,
    FaultKind.CUT_STORE,
    FaultKind.MUTE_STORE,
    FaultKind.DEAF_STORE,
    FaultKind.OUTAGE_STORE,
    FaultKind.LOST_REPLIES,
    FaultKind.SLOW,
    FaultKind.SLOW_REPLIES,
}


def kinds_of(it: Verdict) -> set[str]:
    return {violation.kind for violation in it.violations}


def test_seeds_without_effect_do_not_count() -> None:
    from rota.sim.history import Counts

    void = Verdict(seed=1, placement=Placement.CLAIM, mode=Mode.SAFETY, hash="a", faults=5, counts=Counts())
    total = summed([void, verdict(next(cases(1, None, None)))], 60.0)
    assert (total.seeds, total.void) == (1, 1)
    assert total.seeds_per_min == 1.0


def test_some_seeds_have_transactions_under_way_at_the_same_time() -> None:
    drawn = [Case(seed, Placement.CLAIM, Mode.SAFETY) for seed in range(1, 25)]
    chosen = [it for it in drawn if draw(*it).interleaved]
    assert 2 <= len(chosen) <= 12
    found = [verdict(it) for it in chosen[:3]]
    assert all(it.violations == () for it in found)
    assert all(it.counts.lock_waits > 0 for it in found), "void: nobody waited for anybody"
    assert verdict(chosen[0]).hash == found[0].hash
