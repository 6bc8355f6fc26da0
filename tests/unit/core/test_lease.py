"""When a node is gone: two clocks must say so, and neither alone is believed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from rota.core.lease import LeaseLook, Renewal, is_over, is_replaced, namesakes, renewals
from rota.model.node import Node, NodeState
from tests.factories import a_new_node

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE_S, MARGIN_S = 10.0, 1.0


def a_node(node_id: int = 1, *, until_s: float | None = 0.0, beat: int = 1, **joined: Any) -> Node:
    """One whose lease ends so many seconds from now."""
    until = None if until_s is None else NOW + timedelta(seconds=until_s)
    new = msgspec.structs.replace(a_new_node("a"), **{"lease_s": LEASE_S, **joined})
    return Node(id=node_id, joined=new, state=NodeState.ONLINE, joined_at=NOW, lease_until=until, beat=beat)


@pytest.mark.parametrize(
    ("until_s", "unseen_s", "wait_s", "gone"),
    [
        (-1.1, 11.0, MARGIN_S, True),
        (-1.0, 11.0, MARGIN_S, False),  # margin must have passed, by the store's clock
        (-1.1, 10.9, MARGIN_S, False),  # and by the observer's own
        (-3600.0, 0.0, MARGIN_S, False),  # a store's clock that jumped ahead ends no lease
        (5.0, 3600.0, MARGIN_S, False),  # an observer that slept ends none either
        (-1.1, 11.0, MARGIN_S + 30, False),  # an item with hold_s is left to its node for longer
        (-31.1, 41.0, MARGIN_S + 30, True),
        (3600.0, 11.0, MARGIN_S, True),  # the store's clock was set back: the lease says nothing
        (3600.0, 10.9, MARGIN_S, False),
        (None, 3600.0, MARGIN_S, False),  # it has left
    ],
)
def test_a_node_is_gone_when_both_clocks_say_so(
    *, until_s: float | None, unseen_s: float, wait_s: float, gone: bool
) -> None:
    assert is_over(a_node(until_s=until_s), NOW, unseen_s, lease_s=LEASE_S, wait_s=wait_s) == gone


@pytest.mark.parametrize(("unseen_s", "gone"), [(11.0, False), (61.0, True)])
def test_a_node_with_a_longer_lease_is_judged_by_its_own(*, unseen_s: float, gone: bool) -> None:
    node = a_node(until_s=-2.0, lease_s=60.0)
    assert is_over(node, NOW, unseen_s, lease_s=LEASE_S, wait_s=MARGIN_S) == gone


def a_look(answered_s: float, *, store_s: float | None = None, took_s: float = 0.1) -> LeaseLook:
    """One at NOW, if its answer came at second 100, and at what the store's clock says otherwise."""
    return LeaseLook(
        NOW + timedelta(seconds=answered_s - 100 if store_s is None else store_s), answered_s - took_s, answered_s
    )


def test_a_renewal_that_is_not_new_keeps_its_date() -> None:
    known = {1: Renewal(1, 95.0), 3: Renewal(1, 95.0)}
    assert renewals(known, [a_node(1, beat=1)], a_look(100.0), a_look(96.0)) == {1: Renewal(1, 95.0)}


@pytest.mark.parametrize(
    ("last", "until_s", "at_s"),
    [
        (a_look(96.0), 8.0, 98.0),  # of 10 s it has 8 left: it is 2 s old
        (a_look(96.0), 10.0, 100.0),
        (a_look(96.0), 3.0, 95.9),  # it was not there when the observer looked last
        (a_look(96.0), 3600.0, 100.0),  # of a clock that was set back since
        (a_look(96.0), None, 100.0),
        (a_look(96.0, store_s=-4.1), 8.0, 98.0),  # the answers took their time
        (
            a_look(96.0, store_s=-5.0),
            8.0,
            100.0,
        ),  # the store's clock was set forward in between: it may be from just now
        (a_look(96.0, store_s=-3.0), 8.0, 98.0),
        (None, 8.0, 100.0),  # nothing to compare with
    ],
)
def test_a_look_tells_how_old_a_renewal_is(last: LeaseLook | None, until_s: float | None, at_s: float) -> None:
    """Never older than it can be: else a living node would lose its work."""
    found = renewals({1: Renewal(1, 90.0)}, [a_node(1, beat=2, until_s=until_s)], a_look(100.0), last)
    assert found == {1: Renewal(2, pytest.approx(at_s))}


@pytest.mark.parametrize(
    ("other", "holds"),
    [
        ({"node_id": 2, "until_s": 5.0}, True),
        ({"node_id": 2, "until_s": 0.0}, False),
        ({"node_id": 2, "until_s": None}, False),
        ({"node_id": 2, "until_s": 5.0, "name": "b"}, False),
        ({"node_id": 2, "until_s": 5.0, "incarnation": "mine"}, False),  # a join of its own, whose answer was lost
        ({"node_id": 1, "until_s": 5.0}, False),  # its own former life
    ],
)
def test_a_name_is_held_by_whoever_else_lives_under_it(*, other: dict[str, Any], holds: bool) -> None:
    assert bool(namesakes("a", [a_node(**other)], NOW, own_id=1, token="mine")) == holds


def test_the_last_holder_comes_last() -> None:
    nodes = [a_node(9, until_s=1.0), a_node(3, until_s=1.0), a_node(5, until_s=1.0)]
    assert [it.id for it in namesakes("a", nodes, NOW, own_id=None, token=None)] == [3, 5, 9]


@pytest.mark.parametrize(
    ("own_id", "other", "replaced"),
    [
        (1, {"node_id": 2, "until_s": 5.0}, True),
        (1, {"node_id": 2, "until_s": -5.0}, False),
        (3, {"node_id": 2, "until_s": 5.0}, False),
        (1, {"node_id": 2, "until_s": 5.0, "name": "b"}, False),
        (None, {"node_id": 2, "until_s": 5.0}, False),
    ],
)
def test_only_a_newer_node_replaces(*, own_id: int | None, other: dict[str, Any], replaced: bool) -> None:
    assert is_replaced("a", own_id, [a_node(**other)], NOW) == replaced
