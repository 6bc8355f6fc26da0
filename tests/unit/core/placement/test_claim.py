"""Placement `claim`: limit and sweep (S0.8 to S0.12, S0.36 to S0.43, V0.1 to V0.5, A0.1 to A0.16)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.placement.claim import Sweep, gives, limit, margin, spare, sweep
from rota.core.placement.share import moves, targets
from rota.model.cluster import Handover, Peer


def peers(*names: str, **held: int) -> tuple[Peer, ...]:
    return tuple(Peer(name=name, incarnation=name, held=held.get(name, 0)) for name in names)


def facts(
    name: str = "a",
    live: Iterable[str] = ("a", "b", "c"),
    jobs: Iterable[int] = range(1, 10),
    owned: Iterable[int] = (),
    held: Iterable[int] = (),
    **more: object,
) -> Sweep:
    mine = frozenset(held)
    found: dict[str, object] = {
        "name": name,
        "peers": peers(*live),
        "jobs": frozenset(jobs),
        "owned": frozenset(owned) | mine,
        "held": mine,
        "automatic": False,
        **more,
    }
    return Sweep(**found)  # type: ignore[arg-type]


@pytest.mark.parametrize(("jobs", "limits"), [(10, (3, 3, 4, 6, 11)), (12, (4, 4, 5, 7, 13)), (15, (4, 4, 6, 8, 16))])
def test_the_limits_of_the_document(jobs: int, limits: tuple[int, ...]) -> None:
    """V0.1, V0.2."""
    found = tuple(limit(jobs, 5, faults) for faults in (1, 1, 2, 3, 4))
    assert found == limits
    if jobs == 10:
        assert found[4] >= jobs
        assert jobs - found[3] == 4


def test_the_limits_of_the_walk_through() -> None:
    """V0.3: the column K, S, N."""
    for jobs, schedulers, wanted in [
        (9, 1, 10),
        (10, 1, 11),
        (11, 1, 12),
        (11, 2, 12),
        (12, 2, 13),
        (13, 2, 14),
        (18, 2, 19),
        (18, 1, 19),
        (19, 2, 20),
        (19, 3, 10),
        (21, 3, 11),
    ]:
        assert limit(jobs, schedulers, 1) == wanted


def test_any_n_may_die_and_the_others_hold_all() -> None:
    """V0.4, S0.11, S0.40 and the property of the acceptance list: also when the dead are still counted."""
    for schedulers in range(1, 41):
        for faults in range(1, schedulers):
            for jobs in (*range(60), 61, 97, 100, 999, 1000, 4999, 9973, 10_000):
                before = limit(jobs, schedulers, faults)
                survivors = schedulers - faults
                assert survivors * before >= jobs, (schedulers, faults, jobs)
                assert survivors * limit(jobs, survivors, faults) >= jobs


@given(st.integers(0, 10_000), st.integers(1, 40), st.data())
def test_any_n_may_die_in_any_case(jobs: int, schedulers: int, data: st.DataObject) -> None:
    faults = data.draw(st.integers(1, schedulers + 1))
    assert max(schedulers - faults, 1) * limit(jobs, schedulers, faults) >= jobs


def test_the_edges_are_defined() -> None:
    """A0.13: nobody lives, nothing to do."""
    assert limit(0, 0, 1) == 1
    assert limit(0, 5, 1) == 1
    assert limit(7, 0, 3) == 8


def test_the_simple_rule_does_not_survive_a_crash() -> None:
    """S0.12, as a negative: N = K / S + 1 leaves jobs without an owner when one of three dies and is still counted."""
    simple = 20 // 3 + 1
    assert 2 * simple < 20 <= 2 * limit(20, 3, 1)


def test_with_two_schedulers_nothing_is_ever_refused() -> None:
    """V0.5."""
    for jobs in range(100):
        assert limit(jobs, 2, 1) == limit(jobs, 1, 1) == jobs + 1
    assert limit(19, 3, 1) == 10


def test_a_scheduler_takes_what_is_free_up_to_its_limit() -> None:
    """A0.1: only while X < N."""
    wanted = sweep(facts(jobs=range(1, 20), held=range(1, 9)))
    assert wanted.limit == 10
    assert wanted.claim == (9, 10)
    assert sweep(facts(jobs=range(1, 20), held=range(1, 11))).claim == ()


def test_the_order_of_trying_can_be_given() -> None:
    """A0.12."""
    assert sweep(facts(jobs=(1, 2, 3)), lambda ids: sorted(ids, reverse=True)).claim == (3, 2)
    assert sweep(facts(jobs=(1, 2, 3)), lambda ids: [2]).claim == (2,)


@given(held=st.lists(st.integers(0, 30), min_size=2, max_size=6), free=st.integers(0, 60))
def test_schedulers_that_know_the_same_try_for_different_jobs(held: list[int], free: int) -> None:
    """A0.12: after a crash all is claimed at the first try, however many each had."""
    loads = dict(zip("abcdef", held, strict=False))
    owned, jobs = range(sum(held)), range(sum(held) + free)
    ends = dict(zip(loads, accumulate(held), strict=True))
    tried = [
        sweep(
            facts(
                name,
                peers=peers(*loads, **loads),
                jobs=jobs,
                owned=owned,
                held=range(ends[name] - load, ends[name]),
                automatic=True,
            )
        ).claim
        for name, load in loads.items()
    ]
    wanted = sum(map(len, tried))
    clashes = wanted - len(set(chain(*tried)))
    assert clashes <= max(wanted - free, 0) + len(held), (
        "more than is wanted, and than shares explain that do not divide"
    )


def test_a_drained_scheduler_takes_nothing_and_does_not_count() -> None:
    """S0.37, A0.14."""
    assert sweep(facts(drained=frozenset("a"))).claim == ()
    assert sweep(facts(live="ab", jobs=range(20), drained=frozenset("b"))).limit == 21
    assert sweep(facts(live="abc", jobs=range(20), drained=frozenset("b"))).limit == 21
    assert sweep(facts(live="abc", jobs=range(20))).limit == 11


def test_jobs_that_are_gone_are_released() -> None:
    """S0.35, A0.6, A0.7."""
    assert sweep(facts(jobs=(1, 2), held=(1, 2, 3))).release == (3,)
    assert sweep(facts(jobs=range(1, 3), owned=(1,), held=(7,))).claim == (2,)


def test_a_job_on_its_way_is_kept_for_its_receiver_for_one_session() -> None:
    """A0.11, docs/placement.md."""
    on_way = {5: Handover(to="b")}
    giver = facts(jobs=range(1, 7), held=(5, 6), handovers=on_way, giving=frozenset({5}))
    assert sweep(giver).release == (5,)
    free = range(1, 5)
    assert 5 not in sweep(facts("c", jobs=range(1, 7), owned=(6, *free), handovers=on_way)).claim
    assert sweep(facts("b", jobs=range(1, 7), owned=(6, *free), handovers=on_way)).claim == (5,)
    late = facts("c", jobs=range(1, 7), owned=(6, *free), handovers=on_way, unowned_s={5: 4.1})
    assert sweep(late).claim == (5,)


def test_what_was_taken_because_nobody_came_for_it_is_kept() -> None:
    """Else the one who took it would give it away and take it again."""
    taken = facts("c", jobs=range(1, 7), owned=(6,), held=(5,), handovers={5: Handover(to="b")})
    assert sweep(taken).release == ()
    insisted = facts("c", jobs=range(1, 7), owned=(6,), held=(5,), handovers={5: Handover(to="b", force=True)})
    assert sweep(insisted).release == (5,)


def test_a_person_may_insist_on_one_job_more_than_the_limit() -> None:
    """S0.46: the manual interface."""
    full = {"jobs": range(1, 20), "owned": range(1, 19), "held": range(1, 11)}
    assert sweep(facts(**full, handovers={19: Handover(to="a")})).claim == ()  # type: ignore[arg-type]
    assert sweep(facts(**full, handovers={19: Handover(to="a", force=True)})).claim == (19,)  # type: ignore[arg-type]


def test_a_job_is_not_handed_over_to_one_who_is_gone_or_drained() -> None:
    giving = {"jobs": (5,), "held": (5,), "handovers": {5: Handover(to="b")}, "giving": frozenset({5})}
    assert sweep(facts(**giving)).release == (5,)  # type: ignore[arg-type]
    assert sweep(facts(live="ac", **giving)).release == ()  # type: ignore[arg-type]
    assert sweep(facts(drained=frozenset("b"), **giving)).release == ()  # type: ignore[arg-type]


def test_whoever_has_its_share_leaves_what_is_new_to_others_while_rebalancing_is_automatic() -> None:
    full = facts(jobs=range(1, 10), held=(1, 2, 3), automatic=True)
    assert sweep(full).claim == ()
    assert sweep(facts(jobs=range(1, 10), held=(1, 2), automatic=True)).claim == (3,)
    late = dict.fromkeys(range(4, 10), 4.5)
    assert sweep(facts(jobs=range(1, 10), held=(1, 2, 3), automatic=True, unowned_s=late)).claim == (4, 5)
    assert sweep(facts(jobs=range(1, 10), held=(1, 2, 3))).claim == (4, 5)


def crowd(name: str = "a", **more: object) -> Sweep:
    """All jobs are owned: a has 6, b has 3, c has none."""
    found: dict[str, object] = {
        "name": name,
        "peers": peers("a", "b", "c", a=6, b=3),
        "jobs": frozenset(range(1, 10)),
        "owned": frozenset(range(1, 10)),
        "held": frozenset(range(1, 7)) if name == "a" else frozenset(range(7, 10)) if name == "b" else frozenset(),
        **more,
    }
    return Sweep(**found)  # type: ignore[arg-type]


def test_what_one_has_too_much_goes_to_whom_it_lacks() -> None:
    assert gives(crowd(), 100) == {1: "c", 2: "c", 3: "c"}
    assert gives(crowd(), 2) == {1: "c", 2: "c"}
    assert gives(crowd("b"), 100) == {}


@pytest.mark.parametrize(
    "unrest",
    [
        {"owned": frozenset(range(1, 9))},
        {"handovers": {4: Handover(to="b")}},
        {"peers": peers("a", "b", "c", a=6, b=2)},
        {"peers": peers("a", "b", "c", a=5, b=4)},
        {"drained": frozenset("a")},
        {"automatic": False},
    ],
)
def test_nothing_is_given_while_something_moves_or_when_it_is_not_wanted(unrest: dict[str, object]) -> None:
    """So that no job moves twice: everybody must agree on who has how many."""
    assert gives(crowd(**unrest), 100) == {}


def test_a_drained_scheduler_gets_nothing() -> None:
    assert gives(crowd(drained=frozenset("c")), 100) == {1: "b"}


LOADS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 500), min_size=1, max_size=12)


@given(LOADS)
def test_after_the_moves_loads_differ_by_at_most_one_and_nobody_both_gives_and_gets(loads: dict[str, int]) -> None:
    weights = dict.fromkeys(loads, 1.0)
    after = dict(loads)
    found = moves(loads, weights)
    for move in found:
        after[move.giver] -= move.jobs
        after[move.receiver] += move.jobs
    assert max(after.values()) - min(after.values()) <= 1
    assert after == targets(loads, weights)
    assert sum(after.values()) == sum(loads.values())
    assert not {move.giver for move in found} & {move.receiver for move in found}
    fewest = sum(max(load - targets(loads, weights)[name], 0) for name, load in loads.items())
    assert sum(move.jobs for move in found) == fewest
    assert moves(after, weights) == []


def test_nobody_is_given_more_than_its_limit_however_heavy_it_is() -> None:
    """Or what it is given would stay without an owner, and come back, again and again."""
    assert targets({"a": 0, "b": 9, "c": 9}, {"a": 8.0, "b": 1.0, "c": 1.0}, dict.fromkeys("abc", 10)) == {
        "a": 10,
        "b": 4,
        "c": 4,
    }
    assert targets({"a": 20, "b": 0}, {"a": 1.0, "b": 1.0}, {"a": 5, "b": 5}) == {"a": 5, "b": 5}
    assert moves({"a": 20, "b": 0}, {"a": 1.0, "b": 1.0}, {"a": 5, "b": 5}) == [("a", "b", 5)]
    heavy = Peer(name="a", incarnation="a", weight=8.0)
    light = Peer(name="b", incarnation="b", held=9)
    other = Peer(name="c", incarnation="c", held=9)
    given = Sweep(
        name="b",
        peers=(heavy, light, other),
        jobs=frozenset(range(18)),
        owned=frozenset(range(18)),
        held=frozenset(range(9)),
    )
    assert len(gives(given, 100)) == 5


def test_shares_follow_weights() -> None:
    assert targets({"a": 30, "b": 0}, {"a": 2.0, "b": 1.0}) == {"a": 20, "b": 10}
    assert targets({"a": 3, "b": 0}, {"a": 0.0, "b": 0.0}) == {"a": 0, "b": 0}


def test_spare_and_margin() -> None:
    """A0.10: how many more may die by the limits that they have now."""
    assert spare(19, [10, 10, 10]) == 11
    assert margin(19, [10, 10, 10]) == 1
    assert margin(19, [20, 20]) == 1
    assert margin(19, [10, 9]) == 0
    assert margin(19, [10, 8]) == -1
    assert margin(10, [3, 3, 4, 6, 11]) == 2
    assert margin(0, []) == 0
    assert margin(0, [1, 1]) == 2
