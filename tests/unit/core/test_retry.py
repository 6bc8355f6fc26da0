"""What becomes of an item after an attempt (S2.5, S2.6, S2.17, A2.5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.retry import after, pause_s
from rota.model.states import ItemState, Outcome
from rota.model.work import Backoff, BackoffKind, Retry

LIST = Backoff(kind=BackoffKind.LIST, seconds=(1, 5, 9))
GROWING = Backoff(kind=BackoffKind.EXPONENTIAL, seconds=(2,), factor=3, max_s=20)


def state(outcome: Outcome, retry: Retry, *, cause: str = "", failures: int = 0, losses: int = 0) -> ItemState:
    return after(outcome, cause, failures=failures, losses=losses, retry=retry, chance=0.0).state


@pytest.mark.parametrize(
    ("outcome", "retry", "failures", "expected"),
    [
        (Outcome.SUCCEEDED, Retry(), 0, ItemState.SUCCEEDED),
        (Outcome.FAILED, Retry(), 0, ItemState.FAILED),
        (Outcome.FAILED, Retry(max=2), 0, ItemState.READY),
        (Outcome.FAILED, Retry(max=2), 1, ItemState.READY),
        (Outcome.FAILED, Retry(max=2), 2, ItemState.FAILED),
        (Outcome.TIMED_OUT, Retry(max=1), 0, ItemState.READY),
        (Outcome.TIMED_OUT, Retry(max=1), 1, ItemState.FAILED),
        (Outcome.CANCELLED, Retry(max=9), 0, ItemState.CANCELLED),
        (Outcome.LOST, Retry(), 0, ItemState.READY),
    ],
)
def test_failures_and_timeouts_use_up_retries(
    outcome: Outcome, retry: Retry, failures: int, expected: ItemState
) -> None:
    assert state(outcome, retry, failures=failures) is expected


def test_losses_use_no_retry_but_three_in_a_row_end_the_item() -> None:
    retry = Retry(max=5)
    first = after(Outcome.LOST, "", failures=2, losses=0, retry=retry, chance=0.0)
    assert (first.state, first.failures, first.losses) == (ItemState.READY, 2, 1)
    assert state(Outcome.LOST, retry, losses=1) is ItemState.READY
    last = after(Outcome.LOST, "", failures=0, losses=2, retry=retry, chance=0.0)
    assert last.state is ItemState.FAILED
    assert last.message == "lost: its node was lost 3 times in a row"


def test_what_a_node_gives_back_because_it_can_execute_nothing_is_no_loss() -> None:
    following = after(Outcome.LOST, "unable", failures=1, losses=2, retry=Retry(), chance=0.0)
    assert following == (ItemState.READY, 1.0, 1, 2, "")


def test_a_failure_between_losses_starts_their_count_anew() -> None:
    assert after(Outcome.FAILED, "1", failures=0, losses=2, retry=Retry(max=1), chance=0.0).losses == 0


@pytest.mark.parametrize(
    ("retry", "cause", "repeated"),
    [
        (Retry(max=1, only=("75",)), "75", True),
        (Retry(max=1, only=("75",)), "1", False),
        (Retry(max=1, never=("2",)), "2", False),
        (Retry(max=1, never=("2",)), "1", True),
        (Retry(max=1, only=("LookupError",)), "KeyError LookupError Exception", True),
        (Retry(max=1, never=("LookupError",)), "KeyError LookupError Exception", False),
        (Retry(max=1, never=("memory",)), "memory", False),
    ],
)
def test_exit_codes_and_exceptions_choose_what_is_tried_again(retry: Retry, cause: str, repeated: bool) -> None:
    assert (state(Outcome.FAILED, retry, cause=cause) is ItemState.READY) is repeated


def test_timeouts_have_a_name_of_their_own() -> None:
    assert state(Outcome.TIMED_OUT, Retry(max=1, never=("timeout",))) is ItemState.FAILED
    assert state(Outcome.TIMED_OUT, Retry(max=1, only=("timeout",))) is ItemState.READY


@pytest.mark.parametrize(
    ("backoff", "pauses"),
    [
        (Backoff(), [0, 0, 0]),
        (Backoff(seconds=(4,)), [4, 4, 4]),
        (LIST, [1, 5, 9, 9, 9]),
        (GROWING, [2, 6, 18, 20, 20]),
    ],
)
def test_pauses_follow_the_backoff(backoff: Backoff, pauses: list[float]) -> None:
    assert [pause_s(backoff, n, 0.9) for n in range(1, len(pauses) + 1)] == pauses


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True), st.floats(0, 1))
def test_jitter_only_takes_off_and_the_bound_holds(failures: int, chance: float, jitter: float) -> None:
    backoff = Backoff(kind=BackoffKind.EXPONENTIAL, seconds=(1,), factor=2, max_s=60, jitter=jitter)
    steady = Backoff(kind=BackoffKind.EXPONENTIAL, seconds=(1,), factor=2, max_s=60)
    whole = pause_s(steady, failures, 0.0)
    assert whole * (1 - jitter) <= pause_s(backoff, failures, chance) <= whole <= 60


def test_what_is_lost_again_and_again_rests_longer_and_longer() -> None:
    retry = Retry(lost_max=10)
    pauses = [after(Outcome.LOST, "", failures=0, losses=n, retry=retry, chance=0.0).delay_s for n in range(6)]
    assert pauses == [0.0, 1.0, 5.0, 15.0, 30.0, 30.0]
