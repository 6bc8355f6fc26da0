"""Placement `beat`: no owners; at every beat the idlest scheduler is the first to lock, and fires.

A tick is the number of a beat by the store's clock. Whoever gets the lock of a tick fires every slot in
[tick, tick + beat) at its instant.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rota.model.folders import BEAT

SCORE_S = 0.010
WAIT_MAX_S = 1.0
JITTER_S = 0.005
AHEAD_S = 1.5
"""How long before a beat the waits for its lock begin: the longest is over, and its first slot is not late."""
LOOK_S = 0.5
"""How long before that a node looks what it must know: whoever is slow to learn it does not lose by that."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def wait_s(score: float, chance: float, *, score_s: float = SCORE_S, jitter_s: float = JITTER_S) -> float:
    """How long a node waits before it tries for a lock that any node could have: the idlest is the first (S1.14). A
    little chance keeps equals apart."""
    return min(max(score, 0.0) * score_s, WAIT_MAX_S) + chance * jitter_s


def delay_s(tick: int, beat_s: float, now: datetime, wait: float) -> float:
    """How long from now until a node that waits so long tries for a beat. Of a beat to come everybody waits from the
    same instant, so that whoever was late to look is not late to try; of one that has begun, from now."""
    early_s = (begins_at(tick, beat_s) - now).total_seconds()
    return wait if early_s <= 0 else max(early_s - min(AHEAD_S, beat_s / 2) + wait, 0.0)


def look_s(beat_s: float) -> float:
    """Return how many seconds before a beat a node starts to prepare for it."""
    return min(AHEAD_S + LOOK_S, beat_s * 3 / 4)


def tick_of_soon(now: datetime, beat_s: float) -> int:
    """Return the beat to try for: the present one, or the next if it begins soon."""
    tick = tick_of(now, beat_s)
    return tick + 1 if (begins_at(tick + 1, beat_s) - now).total_seconds() <= look_s(beat_s) else tick


def tick_of(at: datetime, beat_s: float) -> int:
    return int((at - _EPOCH) / timedelta(seconds=beat_s))


def begins_at(tick: int, beat_s: float) -> datetime:
    return _EPOCH + timedelta(seconds=tick * beat_s)


def lock_key(name: str, tick: int) -> str:
    """The key of the heartbeat lock of one tick (S1.11)."""
    return f"{BEAT}/{name}-{tick}"


def busy(cpu: float, busy_seats: int, seats: int, memory: float) -> float:
    """Return 0 (idle) to 100 (full), two decimals: CPU 64 %, taken seats 32 %, memory 4 %. `cpu`, `memory`: 0 to 1."""
    taken = busy_seats / seats if seats else 0.0
    return round(min(cpu, 1.0) * 64 + min(taken, 1.0) * 32 + min(memory, 1.0) * 4, 2)
