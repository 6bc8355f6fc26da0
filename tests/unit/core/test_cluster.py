"""What people may ask of the cluster: shares, rebalancing, drains, claims (S0.40 to S0.46)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.cluster import (
    ClusterFacts,
    claim_objections,
    drain_objections,
    idlest,
    rebalance,
    stale_handovers,
)
from rota.core.placement import claim
from rota.model.cluster import Drain, Handover, Hold, Peer, Placement, Role
from rota.model.job import JobName

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def some(held: dict[str, int], *, free: int = 0, drained: tuple[str, ...] = (), **fields: Any) -> ClusterFacts:
    """Schedulers that have so many jobs each, in the order of their names, and some jobs that nobody has."""
    names = [name for name in sorted(held) for _ in range(held[name])]
    return ClusterFacts(
        **{
            "now": NOW,
            "placement": Placement.CLAIM,
            "jobs": frozenset(range(1, len(names) + free + 1)),
            "peers": tuple(Peer(name=name, incarnation=name) for name in sorted(held)),
            "drains": tuple(Drain(name=name) for name in drained),
            "owners": dict(enumerate(names, 1)),
            **fields,
        }
    )


def test_x_and_n_come_from_the_claims_and_not_from_what_anybody_tells() -> None:
    peers = tuple(Peer(name=name, incarnation=name, held=99, limit=99) for name in "abc")
    facts = some({"a": 6, "b": 3, "c": 0}, free=1, peers=peers)
    assert facts.held == {"a": 6, "b": 3}
    assert facts.limits == dict.fromkeys("abc", 1 + 10 // 2)
    assert (facts.spare, facts.margin, facts.unowned) == (18 - 10, 1, (10,))


def test_a_claim_on_a_job_that_is_gone_counts_for_nobody() -> None:
    facts = some({"a": 2}, jobs=frozenset({1}))
    assert facts.held == {"a": 1}


@pytest.mark.parametrize("placement", [None, Placement.BEAT])
def test_without_owners_no_job_is_unowned(placement: Placement | None) -> None:
    assert some({"a": 0}, free=5, placement=placement).unowned == ()


def test_a_drained_scheduler_has_no_limit_and_does_not_count_as_s() -> None:
    facts = some({"a": 5, "b": 5, "c": 0}, drained=("c",))
    assert facts.limits == dict.fromkeys("ab", 1 + 10)
    assert [str(facts.state_of(peer)) for peer in facts.peers] == ["online", "online", "draining"]


def test_one_drained_as_executor_only_still_counts() -> None:
    drains = (Drain(name="b", roles=(Role.EXECUTOR,)),)
    assert [it.name for it in some({"a": 0, "b": 0}, drains=drains).active] == ["a", "b"]


# Rebalance


def test_a_rebalance_moves_the_fewest_jobs_to_named_receivers() -> None:
    plan = rebalance(some({"a": 9, "b": 0, "c": 3}))
    assert (plan.before, plan.after) == ({"a": 9, "b": 0, "c": 3}, {"a": 4, "b": 4, "c": 4})
    assert {(it.giver, it.receiver) for it in plan.shifts} == {("a", "b"), ("a", "c")}
    assert len({it.job_id for it in plan.shifts}) == 5


def test_what_is_on_its_way_counts_for_its_receiver_and_does_not_move_twice() -> None:
    going = {"a": {job_id: Handover(to="b") for job_id in (1, 2, 3)}}
    plan = rebalance(some({"a": 9, "b": 0, "c": 3}, handovers=going))
    assert plan.after == {"a": 4, "b": 4, "c": 4}
    assert not {1, 2, 3} & {it.job_id for it in plan.shifts}
    assert len(plan.shifts) == 2


def test_what_has_arrived_may_move_on_though_its_hand_over_is_not_tidied_up_yet() -> None:
    plan = rebalance(some({"a": 4, "b": 0}, handovers={"x": {1: Handover(to="a")}}))
    assert plan.after == {"a": 2, "b": 2}


def test_nobody_is_given_more_than_its_limit_whatever_its_weight() -> None:
    peers = tuple(Peer(name=name, incarnation=name, weight=8.0 if name == "a" else 1.0) for name in "abc")
    plan = rebalance(some({"a": 34, "b": 33, "c": 33}, peers=peers))
    assert plan.after == {"a": 51, "b": 25, "c": 24}


def test_a_drained_scheduler_neither_gives_nor_gets() -> None:
    plan = rebalance(some({"a": 6, "b": 0, "c": 6}, drained=("c",)))
    assert plan.after == {"a": 3, "b": 3}


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 40), min_size=1), st.integers(0, 5))
def test_after_a_rebalance_loads_differ_by_one_at_most_and_no_job_moves_needlessly(
    held: dict[str, int], free: int
) -> None:
    facts = some(held, free=free)
    plan = rebalance(facts)
    assert sum(plan.after.values()) == sum(held.values())
    assert max(plan.after.values()) - min(plan.after.values()) <= 1
    assert len(plan.shifts) == sum(max(plan.after[name] - count, 0) for name, count in held.items())
    assert all(facts.owners[it.job_id] == it.giver != it.receiver for it in plan.shifts)
    assert all(plan.after[name] <= facts.limits[name] for name in held)


# Drain


@pytest.mark.parametrize(
    ("faults", "drained", "names", "objections"),
    [
        (1, (), ("a",), 0),
        (1, (), ("a", "b"), 1),
        (2, (), ("a", "b"), 0),
        (1, ("a",), ("b",), 1),
        (1, ("a",), ("a",), 0),
        (2, (), ("a", "b", "c"), 2),
        (1, (), ("stranger",), 0),
    ],
)
def test_more_than_n_at_once_or_all_of_them_needs_force(
    faults: int, drained: tuple[str, ...], names: tuple[str, ...], objections: int
) -> None:
    peers = tuple(Peer(name=name, incarnation=name, faults=faults) for name in "abc")
    facts = some({"a": 4, "b": 4, "c": 4}, peers=peers, drained=drained)
    assert len(drain_objections(facts, names)) == objections


def test_n_is_the_smallest_of_those_that_would_be_drained() -> None:
    peers = tuple(Peer(name=name, incarnation=name, faults=n) for name, n in zip("abcd", (3, 1, 3, 3), strict=True))
    facts = some(dict.fromkeys("abcd", 2), peers=peers)
    assert len(drain_objections(facts, ("a", "b"))) == 1
    assert drain_objections(facts, ("a", "c")) == []


def test_the_last_one_may_be_drained_when_there_are_no_jobs() -> None:
    assert drain_objections(some({"a": 0}), ("a",)) == []
    assert drain_objections(some({"a": 1}), ("a",)) == ["the 0 that would be left could hold 0 of 1 jobs"]


# Claim


def test_a_scheduler_at_its_limit_or_drained_should_not_get_one_more() -> None:
    facts = some({"a": 6, "b": 2, "c": 0}, free=2, drained=())
    limit = claim.limit(10, 3, 1)
    assert limit == 6
    assert claim_objections(facts, "a") == ["a has 6 jobs, and its limit N is 6"]
    assert claim_objections(facts, "b") == []
    assert claim_objections(some({"a": 1, "b": 1}, drained=("b",)), "b") == ["b is on the offline list"]


def test_the_idlest_is_the_one_with_the_fewest_jobs_for_its_weight_those_on_their_way_included() -> None:
    assert idlest(some({"a": 3, "b": 2, "c": 4})) == "b"
    assert idlest(some({"a": 3, "b": 2}, handovers={"a": {1: Handover(to="b"), 2: Handover(to="b")}})) == "a"
    heavy = (Peer(name="a", incarnation="a", weight=4.0), Peer(name="b", incarnation="b"))
    assert idlest(some({"a": 3, "b": 2}, peers=heavy)) == "a"
    assert idlest(some({"a": 1}, drained=("a",))) is None


# Hand-overs that lead nowhere


def test_hand_overs_of_a_giver_that_is_gone_are_stale_when_they_lead_nowhere() -> None:
    jobs = {1: Handover(to="a"), 2: Handover(to="gone"), 3: Handover(to="a"), 77: Handover(to="a")}
    facts = some({"a": 1, "b": 1}, free=1, handovers={"x": jobs, "a": jobs})
    assert stale_handovers(facts) == {"x": (1, 2, 77)}, "3 is still on its way; a tidies its own"


def test_a_hold_covers_its_scope() -> None:
    job = JobName("acme", "etl", "load")
    holds = [Hold(), Hold(tenant="acme"), Hold(tenant="acme", project="etl")]
    assert all(it.covers(job) for it in holds)
    assert not any(it.covers(JobName("other", "etl", "load")) for it in holds[1:])
    assert not holds[2].covers(JobName("acme", "web", "load"))
    assert [str(it) for it in holds] == ["everything", "tenant acme", "project acme/etl"]
