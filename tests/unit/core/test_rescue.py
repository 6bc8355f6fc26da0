"""What becomes of items that nobody will finish."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rota.core.rescue import expired, lost, rescued
from rota.model.moment import micros
from rota.model.states import ItemState, Outcome
from rota.model.work import Queued, Retry

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def an_item(item_id: int = 7, **fields: Any) -> Queued:
    usual = {"state": ItemState.RUNNING, "attempt": 2, "node_id": 3, "round": 5, "assigned_at": NOW, "started_at": NOW}
    plain = {"run_id": 1, "job_id": 1, "lane_id": 1, "start_by_at": NOW, "not_before_at": NOW}
    return Queued(item_id=item_id, **{**plain, **usual, **fields})


@pytest.mark.parametrize(
    ("over_for_s", "seen_gone", "taken"),
    [(0.0, False, [1]), (30.0, False, [1, 2]), (-1.0, False, []), (-1.0, True, [1, 2])],
)
def test_an_item_is_left_to_its_node_for_as_long_as_it_may_be_held(
    *, over_for_s: float, seen_gone: bool, taken: list[int]
) -> None:
    items = [an_item(1), an_item(2, hold_s=30.0)]
    assert [it.item_id for it in rescued(items, lambda hold_s: over_for_s >= hold_s, seen_gone=seen_gone)] == taken


@pytest.mark.parametrize(
    ("losses", "lost_max", "free", "state", "left"),
    [
        (0, 5, False, ItemState.READY, 1),
        (3, 5, False, ItemState.READY, 4),
        (4, 5, False, ItemState.FAILED, 5),
        (5, 5, True, ItemState.READY, 0),  # what had not begun costs nothing
        (50, None, False, ItemState.READY, 51),  # what cannot be read is decided by who can
    ],
)
def test_a_lost_item_is_tried_again_until_it_was_lost_too_often(
    *, losses: int, lost_max: int | None, free: bool, state: ItemState, left: int
) -> None:
    retry = None if lost_max is None else Retry(lost_max=lost_max)
    end = lost(an_item(losses=losses), "berlin", retry, free=free)
    assert (end.outcome, end.state, end.losses, end.node) == (Outcome.LOST, state, left, "berlin")
    assert (end.item_id, end.attempt, end.round, end.started_us) == (7, 2, 5, micros(NOW))


@pytest.mark.parametrize(("failures", "state"), [(0, ItemState.READY), (1, ItemState.FAILED)])
def test_an_item_that_was_not_finished_in_time_has_timed_out(failures: int, state: ItemState) -> None:
    end = expired(an_item(failures=failures, expires_at=NOW, node_id=None), Retry(max=1), 0.5)
    assert (end.outcome, end.state, end.expired_us) == (Outcome.TIMED_OUT, state, micros(NOW))
    assert "did not finish it in time" in end.message or state is ItemState.FAILED
