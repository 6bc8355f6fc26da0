"""What goes back because this release cannot read it."""

from __future__ import annotations

from rota.core.dispatch.versions import PAUSE_MAX_S, PAUSE_S, handed_back
from rota.model.dispatch import Grant, Granted


def delay_s(attempt: int) -> float:
    granted = Granted(item_id=1, run_id=1, job_id=1, lane_id=1, attempt=attempt, failures=0, losses=0, position=0)
    grant = Grant(round=1, at_us=1, items=(granted,))
    (end,) = handed_back([(granted, grant)], node="node", node_id=1, version="1.0.0", to_newer=True)
    return end.delay_s


def test_an_item_that_comes_back_again_and_again_rests_longer_each_time() -> None:
    assert [delay_s(it) for it in (1, 2, 5)] == [PAUSE_S, 2 * PAUSE_S, 5 * PAUSE_S]
    assert delay_s(10_000) == PAUSE_MAX_S
