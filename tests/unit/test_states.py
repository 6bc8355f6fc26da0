"""The one table of legal moves: complete, closed, and used."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.model.plan import Plan, RunMove
from rota.model.run import Event
from rota.model.states import ITEM_MOVES, RUN_MOVES, ItemState, RunState
from rota.transactions.record import NewIds, rows

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("moves", "states"), [(RUN_MOVES, RunState), (ITEM_MOVES, ItemState)])
def test_every_state_has_its_row_and_can_be_reached(moves: dict, states: type[RunState | ItemState]) -> None:
    assert set(moves) == {None, *states}
    assert {state for reached in moves.values() for state in reached} == set(states)


def written(plan: Plan) -> list[Event]:
    return rows(plan, NOW, "test", NewIds([], iter(()), iter(range(9))), []).events


def test_ended_runs_stay_ended() -> None:
    for state in RunState:
        assert state.live == bool(RUN_MOVES[state])


@pytest.mark.parametrize("was", RunState)
@pytest.mark.parametrize("now", RunState)
def test_a_store_writes_only_legal_moves(was: RunState, now: RunState) -> None:
    plan = Plan(moves=(RunMove(run_id=1, job_id=1, was=was, now=now),))
    if now in RUN_MOVES[was]:
        assert [event.run_id for event in written(plan)] == [1]
    else:
        with pytest.raises(AssertionError, match="cannot move"):
            written(plan)
