"""Why a run waits, in words: one row for each thing that can hold an item back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.core.explain import Reason, Why, explain
from rota.model.moment import micros
from rota.model.node import NewNode, Node, NodeState
from rota.model.node import Place as Host
from rota.model.run import Item, Run
from rota.model.standing import ItemStanding, Standing
from rota.model.states import Cause, ItemState, RunState, SkipReason
from rota.model.work import GLOBAL, Lane, Limit, Queued, Rate

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOON = NOW + timedelta(seconds=90)
LANE = Lane(tenant="acme", quota="mail")
QUOTA = "quota:acme/mail"
HOST = Host(host="h", boot_id="b", pid_namespace="n", pid=1, pid_started=1)


def a_run(**fields: Any) -> Run:
    return Run(
        **{
            "id": 7,
            "job_id": 1,
            "version": 1,
            "cause": Cause.SLOT,
            "key": "k",
            "overlap_key": "job:1",
            "state": RunState.RUNNING,
            "due_at": NOW,
            "created_at": NOW,
            **fields,
        }
    )


def a_place(*, lane: Lane = LANE, ahead: int = 0, ahead_in_quota: int = 0, **queued: Any) -> ItemStanding:
    item = Item(id=8, run_id=7, task="main", index=0, state=ItemState.READY, not_before_at=NOW, start_by_at=NOW)
    seen = {"item_id": 8, "run_id": 7, "job_id": 1, "lane_id": 1, "state": ItemState.READY}
    due = {"start_by_at": NOW, "not_before_at": NOW}
    return ItemStanding(
        item=item, queued=Queued(**{**seen, **due, **queued}), lane=lane, ahead=ahead, ahead_in_quota=ahead_in_quota
    )


def a_node(name: str = "berlin", node_id: int = 1, **fields: Any) -> Node:
    state = fields.pop("state", NodeState.ONLINE)
    until = fields.pop("lease_until", NOW + timedelta(seconds=5))
    joined = NewNode(name=name, incarnation="i", place=HOST, **{"seats": 2, **fields})
    return Node(id=node_id, joined=joined, state=state, joined_at=NOW, lease_until=until)


def told(*places: ItemStanding, **fields: Any) -> tuple[Reason, ...]:
    seen = {"now": NOW, "run": a_run(), "nodes": (a_node(),), **fields}
    return explain(Standing(places=places, **seen))


def test_a_run_that_is_over_says_how_and_when() -> None:
    (reason,) = told(run=a_run(state=RunState.SUCCEEDED, ended_at=NOW))
    assert (reason.why, reason.text) == (Why.ENDED, "the run is over: succeeded at 2026-03-01 12:00:00Z")
    (reason,) = told(run=a_run(state=RunState.SKIPPED, reason=SkipReason.OVERLAP, ended_at=NOW))
    assert reason.text == "the run is over: skipped (overlap) at 2026-03-01 12:00:00Z"


def test_a_run_that_waits_for_others_names_them() -> None:
    (reason,) = told(run=a_run(state=RunState.WAITING), before=(5, 6))
    assert (reason.why, reason.item_id) == (Why.OVERLAP, None)
    assert reason.text == "waits by the overlap policy of its job for runs 5, 6 to end"
    (reason,) = told(run=a_run(state=RunState.WAITING), before=(5,))
    assert reason.text.endswith("for run 5 to end")


def test_nothing_is_said_of_a_run_that_is_not_there() -> None:
    assert told(run=None) == ()


TABLE: list[tuple[str, ItemStanding, dict[str, Any], Why, str]] = [
    (
        "not due",
        a_place(not_before_at=SOON),
        {},
        Why.NOT_DUE,
        "is not due until 2026-03-01 12:01:30Z",
    ),
    (
        "backoff",
        a_place(not_before_at=SOON, attempt=2, failures=2),
        {},
        Why.BACKOFF,
        "is tried again at 2026-03-01 12:01:30Z, after 2 failed attempts",
    ),
    (
        "quota full",
        a_place(ahead=12, ahead_in_quota=3),
        {"limits": (Limit(name=QUOTA, cap=5),), "running": {QUOTA: 5}},
        Why.CAP,
        "the quota mail of tenant acme is full: 5 of 5 run; place 13 in line, 12 before it, 3 of them of its quota",
    ),
    (
        "the default capacity",
        a_place(),
        {"running": {GLOBAL: 100}},
        Why.CAP,
        "the global limit is full: 100 of 100 run; it is the first in line",
    ),
    (
        "the job's own cap is what its version says",
        a_place(lane=Lane(tenant="acme", job_id=1, job_cap=2)),
        {"running": {"job:1": 2}, "limits": (Limit(name="job:1"),)},
        Why.CAP,
        "the limit of the job is full: 2 of 2 run; it is the first in line",
    ),
    (
        "resource",
        a_place(lane=Lane(tenant="acme", resources=("db",))),
        {"running": {"resource:db": 1}, "limits": (Limit(name="resource:db", cap=1),)},
        Why.CAP,
        "the resource db is full: 1 of 1 run; it is the first in line",
    ),
    (
        "rate",
        a_place(),
        {"limits": (Limit(name=QUOTA, rate=Rate(max=2, period_s=60), recent=((micros(NOW) - 30_000_000, 2),)),)},
        Why.RATE,
        "the rate of the quota mail of tenant acme (2 starts in 60 s) allows the next start at 2026-03-01 12:00:30Z",
    ),
    (
        "no executor in its group",
        a_place(lane=Lane(tenant="acme", group="gpu")),
        {},
        Why.NO_EXECUTOR,
        (
            "there is no executor in the group gpu (executor.group of a node says where it belongs); "
            "there are executors in default"
        ),
    ),
    (
        "a lease that is over is no executor",
        a_place(),
        {"nodes": (a_node(lease_until=NOW),)},
        Why.NO_EXECUTOR,
        "no node is running: start one with rota up FILE, or rota node start",
    ),
    (
        "a node without seats is no executor",
        a_place(),
        {"nodes": (a_node(seats=0),)},
        Why.NO_EXECUTOR,
        "no node of the group default executes: executor.seats of node berlin is 0",
    ),
    (
        "no handler",
        a_place(lane=Lane(tenant="acme", handler="acme/default/send")),
        {},
        Why.NO_HANDLER,
        (
            "no executor of the group default has the handler acme/default/send; "
            "start a node with the file of its app: rota node start --app FILE"
        ),
    ),
    (
        "no module",
        a_place(lane=Lane(tenant="acme", handler="mail.send:all")),
        {},
        Why.NO_HANDLER,
        (
            "no executor of the group default has the function mail.send:all; "
            "a node may import it if executor.modules names mail.send (ROTA_EXECUTOR_MODULES=mail.send)"
        ),
    ),
    (
        "no listener",
        a_place(lane=Lane(tenant="acme", handler="listener:on_start")),
        {},
        Why.NO_HANDLER,
        (
            "no executor of the group default has an app of acme/default with on_start; "
            "start a node with the file of its app: rota node start --app FILE"
        ),
    ),
    (
        "drained",
        a_place(),
        {"nodes": (a_node(state=NodeState.DRAINING),)},
        Why.NO_EXECUTOR,
        "all executors that could run it are drained: node berlin",
    ),
    (
        "unable",
        a_place(),
        {"nodes": (a_node(digests={"unable": "the disk is full"}), a_node("paris", 2, state=NodeState.DRAINING))},
        Why.NO_EXECUTOR,
        "no executor that could run it can execute anything at present (node berlin: the disk is full)",
    ),
    (
        "seats of those that are able",
        a_place(),
        {"nodes": (a_node(), a_node("paris", 2, digests={"unable": "the disk is full"})), "seated": {1: 2}},
        Why.NO_SEAT,
        "all 2 seats of node berlin are taken",
    ),
    (
        "seats",
        a_place(),
        {"nodes": (a_node(), a_node("paris", 2)), "seated": {1: 2, 2: 2}},
        Why.NO_SEAT,
        "all 4 seats of nodes berlin, paris are taken",
    ),
    (
        "seats only where nobody can reach",
        a_place(),
        {
            "nodes": (a_node(digests={"unreachable": "2 9"}), a_node("paris", 2), a_node("rome", 3, seats=0)),
            "seated": {1: 2},
        },
        Why.UNREACHABLE,
        "node paris would have a seat, but cannot be reached by node berlin",
    ),
    (
        "nothing in its way, though one cannot be reached",
        a_place(),
        {"nodes": (a_node(digests={"unreachable": "2"}), a_node("paris", 2)), "seated": {1: 1}},
        Why.NEXT,
        "may start now, in the next round; it is the first in line",
    ),
    (
        "nothing in its way",
        a_place(ahead=1),
        {"seated": {1: 1}},
        Why.NEXT,
        "may start now, in the next round; place 2 in line, 1 before it, 0 of them of its quota",
    ),
    (
        "assigned",
        a_place(state=ItemState.ASSIGNED, node_id=1, attempt=1, assigned_at=NOW),
        {},
        Why.ASSIGNED,
        "was given to node berlin at 2026-03-01 12:00:00Z (attempt 1)",
    ),
    (
        "running, asked to stop",
        a_place(state=ItemState.RUNNING, node_id=9, attempt=2, started_at=NOW, cancel_at=SOON),
        {},
        Why.RUNNING,
        "runs on node 9 since 2026-03-01 12:00:00Z (attempt 2); it was asked to stop at 2026-03-01 12:01:30Z",
    ),
    (
        "finished from outside",
        a_place(state=ItemState.RUNNING, attempt=1, started_at=NOW, expires_at=SOON),
        {},
        Why.OUTSIDE,
        "started at 2026-03-01 12:00:00Z (attempt 1); waits to be finished from outside, until 2026-03-01 12:01:30Z",
    ),
]


@pytest.mark.parametrize(("place", "fields", "why", "text"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_every_hindrance_has_its_words(place: ItemStanding, fields: dict[str, Any], why: Why, text: str) -> None:
    (reason,) = told(place, **fields)
    assert (reason.why, reason.text) == (why, text)
    assert (reason.item_id, reason.task, reason.index) == (8, "main", 0)


def test_when_it_changes_by_itself_is_told_too() -> None:
    (reason,) = told(a_place(not_before_at=SOON))
    assert reason.until_at == SOON
    (reason,) = told(a_place())
    assert reason.until_at is None


def test_all_that_holds_an_item_back_is_told_not_only_the_first() -> None:
    limits = (Limit(name=QUOTA, cap=1), Limit(name=GLOBAL, cap=1))
    (reason,) = told(a_place(), limits=limits, running={QUOTA: 1, GLOBAL: 1}, nodes=())
    assert reason.why is Why.CAP
    assert [part.split(":")[0].strip() for part in reason.text.split(";")[::2]] == [
        "the global limit is full",
        "the quota mail of tenant acme is full",
        "no node is running",
    ]


def test_each_item_has_its_own_reason() -> None:
    reasons = told(a_place(), a_place(not_before_at=SOON))
    assert [reason.why for reason in reasons] == [Why.NEXT, Why.NOT_DUE]
