"""Six tenants want three times what the caps allow; one of two executors is killed and restarted. By the tasks' own
lines no cap is exceeded at any instant, and by what was committed every round kept the order (P6; S2.2 to S2.4, S2.15).
"""

from pathlib import Path

import pytest

from tests.checkers.executing import steps
from tests.checkers.slots import SECOND
from tests.cluster.pressure import Outcome, Pressure, under_pressure
from tests.cluster.shift import a_shift

SECONDS = 18
STORES = ("postgres", "mariadb")
AT_CAP_MIN = 0.3
CAUGHT_BY = {
    "kept_board": {"caps", "over"},
    "counted_first": {"caps", "over", "passed"},
    "counted_in_lock": {"caps", "over", "passed"},
    "batch_order": {"passed"},
}
TICK_RATE = 30
"""What a node that polls starts in a second: one batch of 30 with every tick of 1000 ms (V2.4)."""


TURNS_MAX = 3
"""A run without enough pressure proves nothing and is made again: a starved machine cannot keep ten tasks going."""


def judge_safety(outcome: Outcome, store: str, seconds: float) -> None:
    print(f"\ncaps and order, {store}, {seconds:g} s: {outcome}")
    assert not outcome.found, outcome.evidence()
    assert outcome.ended == outcome.items
    assert outcome.full_after
    assert not outcome.surprises


def void(outcome: Outcome) -> list[str]:
    """Why a run proves nothing."""
    reasons = {
        f"only {outcome.at_cap:.0%} of the time at the cap": outcome.at_cap < AT_CAP_MIN,
        "nothing was lost with the killed node": outcome.lost == 0,
        "there was seldom a choice": outcome.order.choices <= outcome.items / 2,
    }
    return [reason for reason, holds in reasons.items() if holds]


def judge_whole(outcome: Outcome, store: str, seconds: float) -> None:
    judge_safety(outcome, store, seconds)
    assert void(outcome) == []


@pytest.mark.timeout(400)
@pytest.mark.parametrize("store", ["postgres", pytest.param("mariadb", marks=pytest.mark.nightly)])
async def test_caps_and_order_hold_while_an_executor_is_killed(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    voids: list[list[str]] = []
    for turn in range(TURNS_MAX):
        folder = tmp_path / str(turn)
        folder.mkdir()
        async with request.getfixturevalue(f"{store}_server").fresh_database() as url:
            outcome = await under_pressure(url, Pressure(seconds=SECONDS, seed=turn + 1), folder)
        judge_safety(outcome, store, SECONDS)
        voids.append(void(outcome))
        if not voids[-1]:
            return
    pytest.fail(f"every run was void: {voids}")


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 5))
@pytest.mark.parametrize("store", STORES)
async def test_caps_and_order_hold_for_two_minutes(
    store: str, seed: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with request.getfixturevalue(f"{store}_server").fresh_database() as url:
        judge_whole(await under_pressure(url, Pressure(seconds=120, seed=seed), tmp_path), store, 120)


async def test_two_tenants_share_the_capacity_and_no_tick_bounds_the_rate(postgres_url: str, tmp_path: Path) -> None:
    """V2.3: of 100 seats no tenant with a cap of 60 has more. V2.4: at 30 a second, 100 items take 3 s to start."""
    async with a_shift(postgres_url, tmp_path, settings={"ROTA_EXECUTOR_SEATS": "128"}) as shift:
        for tenant in ("first", "second"):
            await shift.control.limits.set_quota(tenant, cap=60)
        await shift.control.limits.set_capacity(100)
        await shift.start("node-0")
        for tenant in ("first", "second"):
            await shift.assign(tenant, 120, info={"ms": 500, "gate": "full"}, concurrency=60)
        await shift.until(lambda: len(shift.watcher.executing()) >= 100, "all seats to be taken")
        shift.watcher.open_gate("full")
        await shift.until_idle()
        caps = {"global": 100, "quota:first/default": 60, "quota:second/default": 60}
        verdict = shift.judged(caps)
        grants = sorted(at for (at,) in await shift.witness.ask("SELECT assigned_at FROM rota_attempt"))
        busiest = max(sum(at <= it < at + SECOND for it in grants) for at in grants)
        most = max(count for _, count in steps(shift.executed()))
        print(f"\ntwo tenants of 60 on 100: {verdict}, at most {most} at a time; {busiest} dispatched in one second")
        assert verdict.clean, verdict.caps[:5]
        assert most == 100
        assert busiest > TICK_RATE


async def catch(mutant: str, url: str, folder: Path) -> None:
    scene = Pressure(
        seconds=9, kill=False, mutant=mutant, drained=False, long_ms=(100, 300), turn_s=0.3, urgent_s=0.004
    )
    outcome = await under_pressure(url, scene, folder)
    print(f"\nmutant {mutant}: {outcome}")
    assert outcome.found & CAUGHT_BY[mutant], f"{mutant} was not caught: {outcome}"


EVERY_TIME = ("counted_first", "kept_board")


@pytest.mark.parametrize(
    "mutant", [it if it in EVERY_TIME else pytest.param(it, marks=pytest.mark.nightly) for it in CAUGHT_BY]
)
async def test_a_wrong_way_to_dispatch_is_caught(mutant: str, postgres_url: str, tmp_path: Path) -> None:
    await catch(mutant, postgres_url, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", [it for it in CAUGHT_BY if it != "counted_in_lock"])
async def test_a_wrong_way_to_dispatch_is_caught_on_mariadb(mutant: str, mariadb_url: str, tmp_path: Path) -> None:
    await catch(mutant, mariadb_url, tmp_path)
