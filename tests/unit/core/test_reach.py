"""Who can be reached, as one observer sees it (S1.16 to S1.18)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.core.reach import checked, failures, is_answer_of, is_loopback, unreachable
from rota.model.node import NewNode, Node, NodeState, PingAnswer, Place

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HERE = Place(host="h1", boot_id="b1", pid_namespace="n", pid=1, pid_started=1)


def a_node(name: str, address: str, *, id_: int = 1, host: str = "h1", boot_id: str = "b1") -> Node:
    place = Place(host=host, boot_id=boot_id, pid_namespace="n", pid=2, pid_started=2)
    joined = NewNode(name=name, incarnation="i", place=place, address=address)
    return Node(id=id_, joined=joined, state=NodeState.ONLINE, joined_at=NOW, lease_until=NOW)


@pytest.mark.parametrize(
    ("node", "is_checked"),
    [
        (a_node("b", "127.0.0.1:7701"), True),
        (a_node("b", "10.0.0.2:7700", host="h2", boot_id="b2"), True),
        (a_node("b", "127.0.0.1:7700", host="h2", boot_id="b2"), False),
        (a_node("b", "127.0.0.1:7700", host="pod-2"), False),
        (a_node("b", "[::1]:7700", host="h2", boot_id="b2"), False),
        (a_node("b", "localhost:7700", host="h2", boot_id="b2"), False),
        (a_node("b", ""), False),
        (a_node("a", "127.0.0.1:7700"), False),
    ],
)
def test_only_an_address_that_could_lead_to_the_node_is_asked(node: Node, is_checked: bool) -> None:
    assert checked([node], "a", HERE) == ([node] if is_checked else [])


@pytest.mark.parametrize(
    ("answer", "is_its"),
    [
        (PingAnswer(node="b", id=7), True),
        (PingAnswer(node="b"), True),
        (PingAnswer(node="a", id=7), False),
        (PingAnswer(node="b", id=8), False),
        (None, False),
    ],
)
def test_a_stranger_at_its_address_is_a_failed_check(answer: PingAnswer | None, is_its: bool) -> None:
    assert is_answer_of(a_node("b", "10.0.0.2:7700", id_=7), answer) is is_its


def test_three_failures_in_a_row_are_needed_and_one_answer_forgives_them() -> None:
    count: dict[int, int] = {}
    for answers, lost in [
        ({1: False, 2: True}, set()),
        ({1: False, 2: False}, set()),
        ({1: False, 2: True}, {1}),
        ({1: False, 2: False}, {1}),
        ({1: True, 2: False}, set()),
        ({1: False, 2: False}, {2}),
        ({3: False, 1: False}, set()),
        ({2: False, 1: False}, {1}),
    ]:
        count = failures(count, answers)
        assert unreachable(count) == lost


def test_loopback_is_known_by_address_and_by_name() -> None:
    assert all(map(is_loopback, ("127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1")))
    assert not any(map(is_loopback, ("10.0.0.1:1", "[2001:db8::1]:1", "host.example:1")))
