"""Placement `scope`: parts of jobs (S4.8 to S4.10, V4.2 to V4.5, A4.1 to A4.3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.placement.scope import needs_plan, owner_of, plan, preferred, spans
from rota.model.cluster import Peer, Strategy


def nodes(*names: str, weight: float = 1.0) -> list[Peer]:
    return [Peer(name=name, incarnation=name, address=f"{name}:7700", weight=weight) for name in names]


def test_the_rule_of_the_document() -> None:
    """V4.2."""
    assert spans(2300, [1, 1, 1], Strategy.SCOPE) == [(1, 766), (767, 1532), (1533, 2300)]


def test_balanced_parts() -> None:
    """V4.3."""
    assert spans(2300, [1, 1, 1], Strategy.BALANCED) == [(1, 767), (768, 1534), (1535, 2300)]


def test_the_last_takes_the_rest() -> None:
    """V4.4."""
    sizes = [last - first + 1 for first, last in spans(1099, [1.0] * 100, Strategy.SCOPE)]
    assert sizes == [10] * 99 + [109]
    even = [last - first + 1 for first, last in spans(1099, [1.0] * 100, Strategy.BALANCED)]
    assert max(even) - min(even) == 1


def test_fewer_jobs_than_nodes() -> None:
    """V4.5."""
    assert spans(2, [1, 1, 1], Strategy.SCOPE) == [(1, 0), (1, 0), (1, 2)]
    assert spans(0, [1, 1], Strategy.BALANCED) == [(1, 0), (1, 0)]
    assert spans(5, [], Strategy.SCOPE) == []


def test_parts_follow_weights() -> None:
    assert spans(9, [2, 1], Strategy.BALANCED) == [(1, 6), (7, 9)]


JOBS = st.lists(st.integers(1, 10_000), unique=True, max_size=200).map(sorted)
NAMES = st.lists(st.text("abcdefgh", min_size=1, max_size=4), unique=True, min_size=1, max_size=12)


@pytest.mark.parametrize("strategy", Strategy)
@given(JOBS, NAMES, st.integers(1, 50_000))
def test_every_job_has_one_owner_also_one_that_comes_later(
    strategy: Strategy, jobs: list[int], names: list[str], later: int
) -> None:
    """A4.2."""
    cut = plan(nodes(*names), jobs, strategy, 1)
    owner = owner_of(cut)
    for job_id in (*jobs, later):
        assert owner(job_id) in names
        assert sum(job_id in part for part in cut.parts) == (0 if strategy is Strategy.STABLE else 1)


def test_the_order_is_that_of_the_addresses() -> None:
    """S4.9: 2."""
    shuffled = [nodes("c")[0], nodes("a")[0], nodes("b")[0]]
    assert [part.name for part in plan(shuffled, range(1, 10), Strategy.SCOPE, 1).parts] == ["a", "b", "c"]
    assert [str(part) for part in plan(shuffled, range(1, 10), Strategy.SCOPE, 1).parts] == ["1-3", "4-6", "7-"]


@pytest.mark.parametrize("change", ["join", "leave"])
def test_few_jobs_move_when_the_hash_decides(change: str) -> None:
    """A4.3: at most 1/S + 2 %."""
    names = [f"n{n:02}" for n in range(10)]
    before = owner_of(plan(nodes(*names), range(1, 5001), Strategy.STABLE, 1))
    others = [*names, "n99"] if change == "join" else names[:-1]
    after = owner_of(plan(nodes(*others), range(1, 5001), Strategy.STABLE, 2))
    moved = [job_id for job_id in range(1, 5001) if before(job_id) != after(job_id)]
    assert len(moved) / 5000 <= 1 / 10 + 0.02
    concerned = "n99" if change == "join" else names[-1]
    assert all(concerned in (before(job_id), after(job_id)) for job_id in moved)


def test_the_hash_follows_weights() -> None:
    heavy = sum(preferred(job_id, {"a": 3.0, "b": 1.0}) == "a" for job_id in range(4000))
    assert 0.72 < heavy / 4000 < 0.78
    assert preferred(1, {}) is None


def test_jobs_are_cut_anew_when_the_nodes_are_others() -> None:
    """A4.7: one leaves and one joins."""
    jobs = range(1, 10)
    cut = plan(nodes("a", "b"), jobs, Strategy.BALANCED, 1)
    assert not needs_plan(cut, nodes("b", "a"), jobs, Strategy.BALANCED)
    assert needs_plan(None, nodes("a"), jobs, Strategy.BALANCED)
    assert needs_plan(cut, nodes("a", "c"), jobs, Strategy.BALANCED)
    assert needs_plan(cut, nodes("a", "b", weight=2.0), jobs, Strategy.BALANCED)
    assert needs_plan(cut, nodes("a", "b"), jobs, Strategy.STABLE)


def test_jobs_are_cut_anew_when_one_part_has_grown_by_a_quarter() -> None:
    cut = plan(nodes("a", "b"), range(1, 101), Strategy.BALANCED, 1)
    assert not needs_plan(cut, nodes("a", "b"), range(1, 131), Strategy.BALANCED)
    assert needs_plan(cut, nodes("a", "b"), range(1, 201), Strategy.BALANCED)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_with_nobody_to_cut_for_nobody_has_a_job(strategy: Strategy) -> None:
    """All are drained."""
    cut = plan([], range(1, 10), strategy, 1)
    assert cut.parts == ()
    assert owner_of(cut)(1) is None
