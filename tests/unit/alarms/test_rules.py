"""Who is told, what is told together, what is tried again, which levels begin and end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from rota.alarms.rules import TRIES_MAX, again_s, asked_for, chosen, due, late_after_s, levels, message, wants
from rota.alarms.words import AlarmFacts, described, exhausted, node_alarms
from rota.model.alarm import CLUSTER, Alarm, AlarmKind, AlarmRule, Channel, ChannelKind, Delivery, covers
from rota.model.node import NewNode, Node, NodeState, Place
from rota.model.run import Run
from rota.model.states import Cause, RunState
from rota.model.work import OnExhausted, Retry, Work

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MAIL = Channel(kind=ChannelKind.MAIL, to=("ops@example.com",))
PLACE = Place(host="h", boot_id="b", pid_namespace="p", pid=1, pid_started=1)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def a_rule(name: str = "ops", **fields: Any) -> AlarmRule:
    return AlarmRule(**{"name": name, "channel": MAIL, **fields})


def an_alarm(seconds: float = 0.0, **fields: Any) -> Alarm:
    defaults = {
        "id": 1,
        "key": "k",
        "kind": AlarmKind.RUN_FAILED,
        "at": at(seconds),
        "scope": CLUSTER,
        "text": "it failed",
    }
    return Alarm(**{**defaults, **fields})


def a_delivery(seconds: float, *, rule: str = "ops", rests_s: float = 0.0, tries: int = 0, **alarm: Any) -> Delivery:
    number = round(seconds * 1000)
    told = an_alarm(seconds, **{"id": number, "key": f"k{number}", **alarm})
    return Delivery(rule=rule, alarm=told, tries=tries, not_before_at=at(rests_s))


@pytest.mark.parametrize(
    ("wide", "narrow", "holds"),
    [
        ("cluster", "cluster", True),
        ("cluster", "job/a/p/j", True),
        ("cluster", "tenant/a", True),
        ("tenant/a", "job/a/p/j", True),
        ("tenant/a", "project/a/p", True),
        ("tenant/a", "job/ab/p/j", False),
        ("tenant/a", "cluster", False),
        ("project/a/p", "job/a/p/j", True),
        ("project/a/p", "job/a/pq/j", False),
        ("project/a/p", "tenant/a", False),
        ("job/a/p/j", "job/a/p/j", True),
        ("job/a/p/j", "job/a/p/k", False),
        ("job/a/p/j", "project/a/p", False),
    ],
)
def test_a_wider_scope_gets_what_happens_in_a_narrower_one(wide: str, narrow: str, holds: bool) -> None:
    assert covers(wide, narrow) is holds
    assert wants(a_rule(scope=wide), an_alarm(scope=narrow)) is holds


def test_rules_choose_by_kind_and_by_when_they_were_made() -> None:
    rules = [
        a_rule("all"),
        a_rule("other", kinds=(AlarmKind.MISSED_SLOT,)),
        a_rule("young", since_at=at(1)),
        a_rule("old", since_at=at(0), kinds=(AlarmKind.RUN_FAILED, AlarmKind.MISSED_SLOT)),
    ]
    assert chosen(rules, an_alarm()) == ("all", "old")


def test_a_job_is_not_told_of_itself() -> None:
    """Else one that fails would be started again by its own failure."""
    rule = a_rule(channel=Channel(kind=ChannelKind.JOB, to=("a/p/pager",)))
    assert wants(rule, an_alarm(scope="job/a/p/other"))
    assert wants(rule, an_alarm(scope="cluster"))
    assert not wants(rule, an_alarm(scope="job/a/p/pager"))


def test_a_late_start_is_told_to_those_for_whom_it_is_late() -> None:
    rules = [a_rule("strict", late_s=5.0), a_rule("lax", late_s=60.0), a_rule("deaf", kinds=(AlarmKind.RUN_FAILED,))]
    assert chosen(rules, an_alarm(kind=AlarmKind.LATE_START, data={"late_s": 30.0})) == ("strict",)
    assert late_after_s(rules) == 5.0
    assert late_after_s(rules[2:]) is None


def test_who_wants_ends_needs_beginnings() -> None:
    only_ends = [a_rule(kinds=(AlarmKind.RECOVERED,))]
    assert asked_for(only_ends, AlarmKind.NODE_DISCONNECTED)
    assert not asked_for(only_ends, AlarmKind.RUN_FAILED)
    assert not asked_for([], AlarmKind.RUN_FAILED)


def test_what_comes_within_the_time_of_its_rule_is_one_message() -> None:
    pending = [a_delivery(second) for second in (0, 20, 59.9, 60, 100)]
    ready = due(pending, {"ops": a_rule()}, at(60))
    assert [[it.alarm.at for it in parcel.deliveries] for parcel in ready.parcels] == [[at(0), at(20), at(59.9)]]
    assert ready.parcels[0].message.count == 3
    assert ready.next_at == at(120)


def test_nothing_is_sent_before_its_time() -> None:
    ready = due([a_delivery(0), a_delivery(20)], {"ops": a_rule()}, at(59.999))
    assert (ready.parcels, ready.next_at) == ([], at(60))


def test_kinds_and_rules_are_not_mixed() -> None:
    pending = [a_delivery(0), a_delivery(1, kind=AlarmKind.MISSED_SLOT), a_delivery(2, rule="boss"), a_delivery(3)]
    ready = due(pending, {"ops": a_rule(), "boss": a_rule("boss")}, at(100))
    told = [(it.message.rule, it.message.kind, it.message.count) for it in ready.parcels]
    assert told == [("boss", "run_failed", 1), ("ops", "missed_slot", 1), ("ops", "run_failed", 2)]


def test_with_no_time_to_merge_each_is_a_message_at_once() -> None:
    ready = due([a_delivery(0), a_delivery(0.5)], {"ops": a_rule(merge_s=0.0)}, at(1))
    assert [it.message.count for it in ready.parcels] == [1, 1]


def test_sweeps_above_the_threshold_are_never_merged() -> None:
    """A0.2: each later acquisition mails again."""
    pending = [a_delivery(second, kind=AlarmKind.HELD_ABOVE) for second in (0, 1, 2)]
    assert [it.message.count for it in due(pending, {"ops": a_rule()}, at(2)).parcels] == [1, 1, 1]


def test_what_rests_after_a_failure_is_not_sent_again_before() -> None:
    pending = [a_delivery(0, rests_s=90, tries=1)]
    assert due(pending, {"ops": a_rule()}, at(89)).parcels == []
    assert due(pending, {"ops": a_rule()}, at(89)).next_at == at(90)
    assert len(due(pending, {"ops": a_rule()}, at(90)).parcels) == 1


def test_deliveries_of_a_rule_that_is_gone_are_left_alone() -> None:
    assert due([a_delivery(0)], {}, at(100)) == ([], None)


def test_a_message_tells_the_first_few_and_how_many_there_are() -> None:
    alarms = [an_alarm(n, key=str(n), text=f"run {n} failed") for n in range(12)]
    made = message("ops", alarms)
    assert made.count == 12
    assert [it.text for it in made.first] == [f"run {n} failed" for n in range(5)]
    assert made.subject == "rota: run failed: 12 times, first: run 0 failed"
    assert made.text.splitlines()[-1] == "and 7 more, the last at 2026-01-01 00:00:11Z"
    assert message("ops", alarms[:1]).subject == "rota: run failed: run 0 failed"


def test_the_same_alarms_make_the_same_message_again() -> None:
    alarms = [an_alarm(key="a"), an_alarm(key="b")]
    assert message("ops", alarms).id == message("ops", alarms).id
    assert len({message(rule, them).id for rule in ("ops", "boss") for them in (alarms, alarms[:1])}) == 4


def test_failures_are_tried_again_ever_later_and_then_given_up() -> None:
    pauses = [again_s(tries) for tries in range(1, TRIES_MAX + 1)]
    assert pauses[:4] == [2.0, 4.0, 8.0, 16.0]
    assert pauses[-1] is None
    rests = [it for it in pauses if it is not None]
    assert rests == sorted(rests)
    assert max(rests) <= 600.0


def test_levels_begin_when_they_are_not_open_and_end_when_they_are() -> None:
    a, b, c = (an_alarm(key=key, is_open=True) for key in "abc")
    changed = levels([a, b], [b, c], over=["a", "never"])
    assert ([it.key for it in changed.begun], changed.ended) == (["c"], ["a"])
    assert levels([a], [], over=[]).ended == []
    assert levels([a], [a], over=["a"]).ended == []


def a_node(node_id: int, name: str, state: NodeState, joined_s: float) -> Node:
    joined = NewNode(name=name, incarnation=str(node_id), place=PLACE)
    left = None if state is NodeState.ONLINE else at(joined_s + 1)
    return Node(id=node_id, joined=joined, state=state, joined_at=at(joined_s), left_at=left)


def test_a_node_that_can_execute_nothing_is_an_alarm_until_it_can() -> None:
    node = a_node(3, "a", NodeState.ONLINE, 10)
    resting = msgspec.structs.replace(node, joined=msgspec.structs.replace(node.joined, digests={"unable": "full"}))
    present, over = node_alarms([resting])
    assert [(it.key, it.text) for it in present] == [
        ("node_disconnected:3:unable", "node a cannot execute anything: full")
    ]
    assert over == ["node_disconnected:3"]
    present, over = node_alarms([node])
    assert (present, over) == ([], ["node_disconnected:3", "node_disconnected:3:unable"])


def test_a_node_is_disconnected_until_one_of_its_name_is_back() -> None:
    gone = a_node(5, "a", NodeState.DISCONNECTED, 0)
    well = a_node(6, "b", NodeState.OFFLINE, 0)
    present, over = node_alarms([well, gone])
    assert [(it.key, it.at, it.is_open) for it in present] == [("node_disconnected:5", at(1), True)]
    assert over == ["node_disconnected:6", "node_disconnected:6:unable", "node_disconnected:5:unable"]
    present, over = node_alarms([gone, a_node(4, "a", NodeState.ONLINE, 10)])
    keys = [f"node_disconnected:{number}{what}" for number in (4, 5) for what in ("", ":unable")]
    assert (present, sorted(over)) == ([], keys)


def test_a_failed_run_says_whose_it_is_and_what_follows() -> None:
    work = Work(tenant="acme", retry=Retry(on_exhausted=OnExhausted.ALARM))
    run = Run(
        id=7, job_id=0, version=0, cause=Cause.ASSIGN, key="k", overlap_key="", state=RunState.FAILED,
        due_at=NOW, created_at=NOW, work=work,
    )  # fmt: skip
    known = AlarmFacts(jobs={}, runs={7: run}, definitions={}, messages={7: "exit code 3"})
    told = described(an_alarm(scope=None, text="", run_id=7), known)
    assert (told.scope, told.text) == ("tenant/acme", "run 7 of tenant acme failed: exit code 3")
    more = exhausted(told, known)
    assert more is not None
    assert (more.kind, more.key, more.scope, more.id) == (AlarmKind.EXHAUSTED, "exhausted:7", "tenant/acme", 0)
    assert exhausted(an_alarm(kind=AlarmKind.MISSED_SLOT, run_id=7), known) is None


def test_the_end_of_a_level_says_what_is_over() -> None:
    over = an_alarm(id=9, key="lost", is_open=True, text="it is lost").recovery(at(30))
    assert (over.kind, over.key, over.text) == (AlarmKind.RECOVERED, "recovered:lost#9", "over: it is lost")
    assert (over.is_open, over.data["lasted_s"]) == (False, 30.0)
