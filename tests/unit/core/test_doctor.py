"""The doctor: each thing that can be wrong is found, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from rota.core.cluster import ClusterFacts
from rota.core.doctor import ASSIGNED_S, READY_S, Health, Stuck, examine, lasting, skew_s, suspects
from rota.core.explain import Why
from rota.core.findings import KINDS, Finding, Severity, found
from rota.core.placement.layout import Wrong
from rota.model.cluster import Drain, Handover, Hold, Peer, Placement, Repair
from rota.model.entry import Entry
from rota.model.node import Members, Node, NodeState
from rota.model.states import ItemState
from rota.model.work import Queued
from tests.factories import PLACE, a_new_node

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_peer(name: str, **fields: Any) -> Peer:
    fine = {"placement": Placement.CLAIM, "held": 2, "address": f"{name}.example:7700"}
    return Peer(**{"name": name, "incarnation": name, **fine, **fields})


def a_node(name: str, *, host: str = "host", lease_s: float = 5.0, **fields: Any) -> Node:
    digests = {"tzdata": "2026.1", "skew_s": "0.0"}
    joined = a_new_node(name, **{"digests": digests, "boundary": "namespace", "version": "1", **fields})
    joined = msgspec.structs.replace(joined, place=msgspec.structs.replace(PLACE, host=host))
    until = NOW + timedelta(seconds=lease_s)
    return Node(id=1, joined=joined, state=NodeState.ONLINE, joined_at=NOW, lease_until=until)


def healthy(*, cluster: dict[str, Any] | None = None, nodes: list[Node] | None = None, **fields: Any) -> Health:
    """Three schedulers that have two jobs each."""
    facts = ClusterFacts(
        **{
            "now": NOW,
            "placement": Placement.CLAIM,
            "jobs": frozenset(range(1, 7)),
            "peers": tuple(a_peer(name) for name in "abc"),
            "owners": dict(enumerate("aabbcc", 1)),
            **(cluster or {}),
        }
    )
    members = Members(now=NOW, nodes=tuple(nodes if nodes is not None else [a_node(name) for name in "abc"]))
    return Health(**{"cluster": facts, "members": members, "asked_at": NOW, "answered_at": NOW, **fields})


def codes(health: Health) -> set[str]:
    return {it.code for it in examine(health)} - {"boundary"}


def test_nothing_is_wrong_with_a_healthy_cluster_and_its_boundary_is_told() -> None:
    (only,) = examine(healthy())
    assert (only.severity, only.code, only.about) == (Severity.NOTE, "boundary", "a, b, c")


def peers(**fields: Any) -> dict[str, Any]:
    """The first of three schedulers is different."""
    return {"peers": (a_peer("a", **fields), a_peer("b"), a_peer("c"))}


FAULTS: list[tuple[str, Health]] = [
    ("no_scheduler", healthy(cluster={"peers": (), "owners": {}, "placement": None})),
    ("few_schedulers", healthy(cluster={"drains": (Drain(name="c"),)})),
    ("no_faults", healthy(cluster={"peers": tuple(a_peer(name, faults=0) for name in "abc")})),
    ("differing_faults", healthy(cluster=peers(faults=2))),
    ("differing_placements", healthy(cluster=peers(placement=Placement.SCOPE) | {"placement": Placement.CLAIM})),
    ("unowned", healthy(cluster={"jobs": frozenset(range(1, 8))})),
    ("wrong_belief", healthy(cluster=peers(held=3))),
    ("stale_handover", healthy(cluster={"handovers": {"x": {1: Handover(to="a")}}})),
    ("wrong_entry", healthy(wrong=(Wrong(entry=Entry(key="jobs/1", value="x", version=1), why="it lasts"),))),
    ("repaired", healthy(repairs={"a": (Repair(at=NOW, what="the plan was lost"),)})),
    ("unreachable", healthy(cluster=peers(unreachable=("b",)))),
    ("not_rescued", healthy(nodes=[a_node("a", lease_s=-11.0)])),
    ("differing_versions", healthy(nodes=[a_node("a"), a_node("b", version="2")])),
    ("differing_tzdata", healthy(nodes=[a_node("a"), a_node("b", digests={"tzdata": "2025.2"})])),
    ("clock_skew", healthy(nodes=[a_node("a", digests={"skew_s": "2.0"})])),
    ("clock_skew", healthy(asked_at=NOW - timedelta(seconds=4), answered_at=NOW - timedelta(seconds=3))),
    ("store_setting", healthy(weaknesses=("fsync is off",))),
    ("unreadable", healthy(unread={"job 7": "a word of a newer release"})),
    ("history_lost", healthy(raised=(NOW - timedelta(hours=3), "a backup was restored"))),
    ("misplaced", healthy(misplaced=2)),
    ("not_started", healthy(stuck=(Stuck(item_id=1, run_id=2, why=Why.NEXT, text="may start now"),))),
    ("not_begun", healthy(stuck=(Stuck(item_id=1, run_id=2, why=Why.ASSIGNED, text="was given to a"),))),
    ("not_runnable", healthy(stuck=(Stuck(item_id=1, run_id=2, why=Why.NO_HANDLER, text="no executor has it"),))),
    ("paused", healthy(cluster={"holds": (Hold(tenant="acme", actor="me"),)})),
    ("unable", healthy(nodes=[a_node("a", digests={"unable": "its disk is full"})])),
    ("root_tasks", healthy(nodes=[a_node("a", digests={"tasks": "root"})])),
    ("weak_boundary", healthy(nodes=[a_node("a", boundary="group")])),
    (
        "loopback",
        healthy(cluster=peers(address="127.0.0.1:7700"), nodes=[a_node("a", host="one"), a_node("b", host="two")]),
    ),
]


@pytest.mark.parametrize(("code", "health"), FAULTS, ids=[code for code, _ in FAULTS])
def test_each_fault_is_found_alone(code: str, health: Health) -> None:
    assert codes(health) == {code}


def test_every_kind_of_finding_can_be_found() -> None:
    rest = {"boundary", "no_spare", "no_margin"}
    assert {code for code, _ in FAULTS} | rest == set(KINDS)


@pytest.mark.parametrize(
    ("asked_s", "answered_s", "skew"),
    [(0, 0, 0.0), (-9, 9, 0.0), (0, 30, 0.0), (-30, 0, 0.0), (2, 9, 2.0), (-9, -2, -2.0)],
)
def test_a_late_answer_is_not_skew(asked_s: float, answered_s: float, skew: float) -> None:
    asked, answered = (NOW + timedelta(seconds=it) for it in (asked_s, answered_s))
    assert skew_s(asked, NOW, answered) == skew
    late = healthy(asked_at=asked, answered_at=answered)
    assert ("clock_skew" in codes(late)) == (abs(skew) > 1)


def test_a_lone_scheduler_has_no_margin() -> None:
    alone = healthy(cluster={"peers": (a_peer("a", held=6),), "owners": dict.fromkeys(range(1, 7), "a")})
    assert codes(alone) == {"few_schedulers", "no_margin"}


def test_limits_that_cannot_hold_all_jobs_are_an_error() -> None:
    """By the formula only n below 0 leads there, which no configuration allows; the check does not rely on that."""
    short = tuple(a_peer(name, faults=-20) for name in "abc")
    assert codes(healthy(cluster={"peers": short})) == {"no_spare", "no_faults"}


def test_loopback_is_fine_while_all_nodes_are_on_one_host() -> None:
    assert codes(healthy(cluster=peers(address="[::1]:7700"))) == set()
    two = [a_node("a", host="one"), a_node("b", host="two")]
    for address in ("[::1]:7700", "localhost:7700", "127.0.0.2:1"):
        assert codes(healthy(cluster=peers(address=address), nodes=two)) == {"loopback"}


@pytest.mark.parametrize("why", [Why.CAP, Why.RATE, Why.NO_SEAT, Why.BACKOFF, Why.NOT_DUE, Why.RUNNING])
def test_an_item_that_waits_for_a_good_reason_is_not_stuck(why: Why) -> None:
    assert codes(healthy(stuck=(Stuck(item_id=1, run_id=2, why=why, text="waits"),))) == set()


def test_beats_have_no_owners_and_no_limits_to_complain_of() -> None:
    beat = tuple(a_peer(name, placement=Placement.BEAT, held=0) for name in "abc")
    assert codes(healthy(cluster={"placement": Placement.BEAT, "peers": beat, "owners": {}})) == set()


def test_the_worst_comes_first() -> None:
    order = [it.severity for it in examine(healthy(misplaced=1, asked_at=NOW + timedelta(seconds=9)))]
    assert order == [Severity.ERROR, Severity.WARNING, Severity.NOTE]


def test_what_may_pass_counts_only_when_it_is_there_twice() -> None:
    gone, stays, new = found("unowned", "3"), found("wrong_belief", "x", "a"), found("wrong_belief", "x", "b")
    weak = found("store_setting", "fsync is off")
    assert lasting([gone, stays], [stays, new, weak]) == (stays, weak)


def queued(state: ItemState, ago_s: float) -> Queued:
    at = NOW - timedelta(seconds=ago_s)
    return Queued(
        item_id=1, run_id=1, job_id=1, lane_id=1, state=state, start_by_at=at, not_before_at=at, assigned_at=at
    )


def test_items_are_suspect_after_a_while() -> None:
    for state, bound_s in ((ItemState.READY, READY_S), (ItemState.ASSIGNED, ASSIGNED_S)):
        assert suspects([queued(state, bound_s - 1)], NOW) == []
        assert len(suspects([queued(state, bound_s + 1)], NOW)) == 1
    assert suspects([queued(ItemState.RUNNING, 10**6)], NOW) == []


def test_every_kind_says_why_and_what_to_do() -> None:
    for code, kind in KINDS.items():
        made = found(code, "what")
        assert isinstance(made, Finding)
        assert kind.why
        assert kind.todo or kind.severity is Severity.NOTE


def test_why_a_boundary_is_not_a_stronger_one_is_told() -> None:
    weak = [a_node("a", boundary="guardian", digests={"boundary": "cgroup: no hierarchy"})]
    (only,) = (it for it in examine(healthy(nodes=weak)) if it.code == "weak_boundary")
    assert only.what.endswith("boundary guardian; nothing stronger, for cgroup: no hierarchy")
