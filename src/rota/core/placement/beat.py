"""Placement `beat`, document 1: no owners; at every beat the idlest scheduler is the first to lock, and fires.

A tick is the number of a beat by the store's clock. Whoever gets the lock of a tick fires every slot in
[tick, tick + beat) at its instant.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rota.model.folders import BEAT

WAIT_PER_SCORE_S = 0.010
WAIT_MAX_S = 1.0
JITTER_S = 0.005

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def wait_s(score: float, chance: float) -> float:
    """How long a node waits before it tries for a lock that any node could have: the idlest is the first (S1.14). A
    little chance keeps equals apart."""
    return min(max(score, 0.0) * WAIT_PER_SCORE_S, WAIT_MAX_S) + chance * JITTER_S


def tick_of(at: datetime, beat_s: float) -> int:
    """The number of the beat that an instant is in."""
    return int((at - _EPOCH) / timedelta(seconds=beat_s))


def begins_at(tick: int, beat_s: float) -> datetime:
    """When a beat begins."""
    return _EPOCH + timedelta(seconds=tick * beat_s)


def lock_key(name: str, tick: int) -> str:
    """The key of the heartbeat lock of one tick (S1.11)."""
    return f"{BEAT}/{name}-{tick}"
