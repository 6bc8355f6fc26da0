"""Each judge finds a hand-made broken history, and is silent on the same one in order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rota.model.cluster import Placement, Strategy
from rota.model.job import OverlapPolicy
from rota.sim import checkers
from rota.sim.checkers import check
from rota.sim.history import Attempted, Claimed, Fired, History, HostWindow, Noted, StuckItem, Survey
from rota.sim.plan import FaultKind, Mode, PlannedFault, Scenario, SimJob

BEGIN_S = 1_767_225_600
MINUTE = SimJob(every_s=60, work_s=1.0, tenant="red", overlap=OverlapPolicy.FORBID)
FIRST_US = (BEGIN_S + 60) * 1_000_000
NAMES = ("node-0", "node-1", "node-2")


def a_history(
    *, mode: Mode = Mode.SAFETY, placement: Placement = Placement.CLAIM, jobs: int = 1, **fields: Any
) -> History:
    scenario = Scenario(
        seed=1,
        placement=placement,
        mode=mode,
        nodes=3,
        seats=2,
        jobs=(MINUTE,) * jobs,
        caps={"global": 3, "red": 2},
        strategy=Strategy.BALANCED,
        automatic=True,
        hears=True,
        finishers=1,
        skews_s=(0.0,) * 4,
        rates=fields.pop("rates", {}),
        faults=fields.pop("faults", ()),
    )
    return History(scenario=scenario, end_s=120.0, end_us=(BEGIN_S + 119) * 1_000_000, **fields)


def fired(*slots: int, at_us: int = FIRST_US + 60_000_000, count: int = 1, **fields: Any) -> list[Fired]:
    """Rows for slots, counted from the first."""
    return [
        msgspec.structs.replace(Fired(61.0, at_us, 1, FIRST_US + n * 60_000_000, count, "node-0"), **fields)
        for n in slots
    ]


def attempted(item_id: int, at_s: float, end_s: float | None, **fields: Any) -> Attempted:
    told = {"host": "node-0", "attempt": 1, "token": 1, "tenant": "red", **fields}
    return Attempted(at_s=at_s, item_id=item_id, end_s=end_s, **told)


def seen(owners: dict[int, list[str]], told: dict[str, tuple[int, int]] | None = None, at_s: float = 118.0) -> Survey:
    return Survey(at_s, owners, told or dict.fromkeys(NAMES, (1, 3)), list(NAMES))


def entry(at_s: float, key: str, name: str, *, gone: bool = False) -> Claimed:
    return Claimed(at_s, key, f"session of {name}", name, gone)


LIVES = [entry(0.1, f"live/{name}", name) for name in NAMES]
SECOND = {"attempt": 2, "token": 2, "host": "node-1"}
FROZEN = [HostWindow("node-0", 1.0, 30.0)]

DRAINED = [HostWindow("node-2", 20.0, 240.0)]
THREE_STARTS = [attempted(n, at_s, at_s + 0.1) for n, at_s in enumerate((50.0, 50.5, 53.0))]
RATES = {"red": (2, 8.0)}
JUMP = PlannedFault(at_s=45.0, kind=FaultKind.STEP_STORE, much=9.0)


def kept_by_a_drained_one(*, busy: bool = False) -> list[Survey]:
    told, jobs = dict.fromkeys(NAMES, (1, 3)), [1] * busy
    return [Survey(at_s, {1: ["node-2"]}, told, list(NAMES), [], ["node-2"], jobs) for at_s in (116.0, 118.0)]


GOOD: dict[str, History] = {
    "starts at the rate": a_history(rates=RATES, attempts=[attempted(n, 5.5 * n, 5.5 * n + 1) for n in range(9)]),
    "starts after a jump of the store's clock": a_history(rates=RATES, attempts=THREE_STARTS, faults=(JUMP,)),
    "a job back with its owner when another was drained": a_history(
        entries=[
            *LIVES,
            entry(29.0, "jobs/1", "node-0"),
            entry(30.0, "jobs/1", "node-0", gone=True),
            entry(32.0, "jobs/1", "node-0"),
        ],
        drained=[HostWindow("node-1", 31.0, 40.0)],
    ),
    "a job back with its owner when another came while it was given": a_history(
        entries=[
            entry(29.0, "jobs/1", "node-0"),
            *LIVES,
            entry(29.5, "live/node-3", "node-3"),
            entry(30.0, "jobs/1", "node-0", gone=True),
            entry(32.0, "jobs/1", "node-0"),
        ],
    ),
    "a drained scheduler with a job that runs": a_history(
        mode=Mode.LIVENESS, fired=fired(0), drained=DRAINED, seen=kept_by_a_drained_one(busy=True)
    ),
    "slots, each once": a_history(fired=fired(0, 1)),
    "slots that one row stands for": a_history(fired=fired(0, count=2)),
    "a second attempt after the first": a_history(attempts=[attempted(1, 0, 5), attempted(1, 5, 9, **SECOND)]),
    "a host that stood still": a_history(
        attempts=[attempted(1, 0, 30.5), attempted(1, 20, 40, **SECOND)], frozen=FROZEN
    ),
    "a full cap": a_history(attempts=[attempted(1, 0, 5), attempted(2, 0, 5), attempted(3, 5, 6)]),
    "an end and the next attempt": a_history(items=[Noted(1, 1, 1), Noted(2, 1, 1, "lost"), Noted(2, 1, 2)]),
    "claims up to N": a_history(jobs=4, entries=[*LIVES, *(entry(10, f"jobs/{n}", "node-0") for n in range(1, 4))]),
    "claims above N by one that cannot see": a_history(
        jobs=4,
        entries=[*LIVES, *(entry(10, f"jobs/{n}", "node-0") for n in range(1, 5))],
        faults=(PlannedFault(at_s=5, kind=FaultKind.CUT_COORDINATOR, node=0, for_s=10),),
    ),
    "a job that comes back after somebody died": a_history(
        entries=[
            *LIVES,
            entry(10, "jobs/1", "node-0"),
            entry(11, "jobs/1", "node-0", gone=True),
            entry(12, "live/node-1", "node-1", gone=True),
            entry(12, "jobs/1", "node-0"),
        ]
    ),
    "calm": a_history(
        mode=Mode.LIVENESS,
        jobs=3,
        fired=[it for n in (1, 2, 3) for it in fired(0, job_id=n)],
        seen=[seen({1: ["node-0"], 2: ["node-1"], 3: ["node-2"]})],
        stuck=[StuckItem(1, 110.0, "ready")],
    ),
    "beats have no owners": a_history(
        mode=Mode.LIVENESS, placement=Placement.BEAT, fired=fired(0), seen=[seen({1: []})]
    ),
}

ONE_EACH = {1: ["node-0"], 2: ["node-1"], 3: ["node-2"]}
THREE_FIRED = [it for n in (1, 2, 3) for it in fired(0, job_id=n)]

BAD: dict[str, tuple[str, History]] = {
    "a gap": ("lost", a_history(fired=fired(0, 2, at_us=FIRST_US + 120_000_000))),
    "nothing fired, in calm": ("lost", a_history(mode=Mode.LIVENESS, seen=[seen({1: ["node-0"]})])),
    "two rows for a slot": ("doubled", a_history(fired=fired(0, 1, 1))),
    "a row that stands for a slot again": ("doubled", a_history(fired=[*fired(0, count=2), *fired(1)])),
    "before its time": ("early", a_history(fired=fired(0, at_us=FIRST_US - 1))),
    "several, the last before its time": ("early", a_history(fired=fired(0, count=2, at_us=FIRST_US + 1))),
    "what is no slot": ("strange", a_history(fired=[*fired(0), *fired(0, slot_us=FIRST_US + 7)])),
    "two attempts at once": (
        "two_attempts",
        a_history(attempts=[attempted(1, 0, 5), attempted(1, 4.9, 9, **SECOND)]),
    ),
    "one that never ended": (
        "two_attempts",
        a_history(attempts=[attempted(1, 0, None), attempted(1, 50, 60, **SECOND)]),
    ),
    "too long after it went on": (
        "two_attempts",
        a_history(attempts=[attempted(1, 0, 31.0), attempted(1, 20, 40, **SECOND)], frozen=FROZEN),
    ),
    "another host stood still": (
        "two_attempts",
        a_history(attempts=[attempted(1, 0, 5), attempted(1, 4, 9, **SECOND)], frozen=[HostWindow("node-2", 0, 9)]),
    ),
    "more than a quota": ("cap", a_history(attempts=[attempted(n, 0, 5) for n in (1, 2, 3)])),
    "more than all may": (
        "cap",
        a_history(attempts=[attempted(n, 0, 5, tenant=f"tenant {n}") for n in (1, 2, 3, 4)]),
    ),
    "an old end that counted": (
        "stale",
        a_history(items=[Noted(1, 1, 1), Noted(2, 1, 2), Noted(3, 1, 1, "succeeded")]),
    ),
    "a token twice": (
        "stale",
        a_history(attempts=[attempted(1, 0, 5), attempted(1, 6, 9, attempt=2, token=1)]),
    ),
    "a claim above N": (
        "above_limit",
        a_history(jobs=4, entries=[*LIVES, *(entry(10, f"jobs/{n}", "node-0") for n in range(1, 5))]),
    ),
    "what was given away comes back": (
        "bounced",
        a_history(
            entries=[
                *LIVES,
                entry(10, "jobs/1", "node-0"),
                entry(11, "jobs/1", "node-0", gone=True),
                entry(12, "jobs/1", "node-0"),
            ]
        ),
    ),
    "a job without an owner": (
        "unowned",
        a_history(mode=Mode.LIVENESS, jobs=3, fired=THREE_FIRED, seen=[seen({**ONE_EACH, 2: []})]),
    ),
    "a job with two": (
        "two_owners",
        a_history(mode=Mode.LIVENESS, jobs=3, fired=THREE_FIRED, seen=[seen({**ONE_EACH, 2: ["node-1", "node-2"]})]),
    ),
    "late": (
        "late",
        a_history(
            mode=Mode.LIVENESS, fired=fired(0, at_us=FIRST_US + 3_000_000, at_s=117.0), seen=[seen({1: ["node-0"]})]
        ),
    ),
    "all on one": (
        "uneven",
        a_history(mode=Mode.LIVENESS, jobs=3, fired=THREE_FIRED, seen=[seen({key: ["node-0"] for key in (1, 2, 3)})]),
    ),
    "ranges of different sizes": (
        "uneven",
        a_history(
            mode=Mode.LIVENESS,
            placement=Placement.SCOPE,
            jobs=3,
            fired=THREE_FIRED,
            seen=[seen({1: ["node-0"], 2: ["node-0"], 3: ["node-1"]})],
        ),
    ),
    "limits that survive no crash": (
        "not_survivable",
        a_history(mode=Mode.LIVENESS, jobs=3, fired=THREE_FIRED, seen=[seen(ONE_EACH, dict.fromkeys(NAMES, (1, 1)))]),
    ),
    "one start too many": ("rate", a_history(rates=RATES, attempts=THREE_STARTS)),
    "a scheduler of which the coordinator does not say all": (
        "untold",
        a_history(
            mode=Mode.LIVENESS,
            fired=fired(0),
            seen=[msgspec.structs.replace(seen({1: ["node-0"]}), untold=["all/node-0 is missing"])],
        ),
    ),
    "a drained scheduler with a job": (
        "drained",
        a_history(
            mode=Mode.LIVENESS,
            fired=fired(0),
            drained=DRAINED,
            seen=kept_by_a_drained_one(),
        ),
    ),
    "an item that waits for ever": (
        "stuck",
        a_history(
            mode=Mode.LIVENESS, fired=fired(0), seen=[seen({1: ["node-0"]})], stuck=[StuckItem(1, 90.0, "ready")]
        ),
    ),
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_what_is_in_order_passes(history: History) -> None:
    assert check(history) == []


@pytest.mark.parametrize(("kind", "history"), BAD.values(), ids=BAD)
def test_what_is_broken_is_found_and_named(kind: str, history: History) -> None:
    assert {it.kind for it in check(history)} == {kind}


def test_every_judge_has_found_something() -> None:
    names = {judge.__name__ for judge in (*checkers.SAFETY, *checkers.LIVENESS)}
    finds = {
        judge.__name__
        for judge in (*checkers.SAFETY, *checkers.LIVENESS)
        if any(list(judge(history)) for _, history in BAD.values())
    }
    assert finds == names
