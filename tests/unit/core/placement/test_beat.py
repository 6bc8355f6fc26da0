"""Placement `beat`: ticks by the store's clock, and the wait by the busy score (S1.11, S1.12, S1.14, V1.1 to V1.5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.core.placement.beat import JITTER_S, begins_at, busy, lock_key, look_s, tick_of, tick_of_soon, wait_s


@pytest.mark.parametrize(
    ("load", "score", "wait_ms"),
    [
        ((0.0, 0, 16, 0.0), 0.0, 0),
        ((1.0, 16, 16, 1.0), 100.0, 1000),
        ((0.5, 8, 16, 0.5), 50.0, 500),
        ((0.25, 4, 16, 0.5), 26.0, 260),
        ((0.0, 16, 16, 0.0), 32.0, 320),
    ],
)
def test_the_vectors_of_the_document(load: tuple[float, int, int, float], score: float, wait_ms: int) -> None:
    """V1.1 to V1.5."""
    assert busy(*load) == score
    assert round(wait_s(score, 0.0) * 1000) == wait_ms


def test_the_wait_is_bounded_and_equals_are_kept_apart() -> None:
    assert wait_s(250.0, 0.0) == 1.0
    assert wait_s(-1.0, 0.0) == 0.0
    assert wait_s(10.0, 0.999) - wait_s(10.0, 0.0) <= JITTER_S == 0.005


def test_a_tick_covers_its_beat_and_nothing_else() -> None:
    at = datetime(2026, 3, 29, 1, 30, 59, 999_999, tzinfo=UTC)
    tick = tick_of(at, 60)
    assert begins_at(tick, 60) == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    assert tick_of(at + timedelta(microseconds=1), 60) == tick + 1
    assert tick_of(begins_at(tick, 60), 60) == tick
    assert tick_of(begins_at(tick, 0.5), 0.5) == tick


def test_locks_of_different_ticks_and_duties_are_different() -> None:
    assert len({lock_key(name, tick) for name in ("fire", "prune") for tick in (1, 2)}) == 4


@pytest.mark.parametrize("beat_s", [10.0, 60.0])
def test_a_node_turns_to_the_next_beat_shortly_before_it_begins(beat_s: float) -> None:
    begins = begins_at(7, beat_s)
    before = timedelta(seconds=look_s(beat_s))
    tick = timedelta(microseconds=1)
    assert [tick_of_soon(begins - before + it, beat_s) for it in (-tick, timedelta(), tick, before)] == [6, 7, 7, 7]
