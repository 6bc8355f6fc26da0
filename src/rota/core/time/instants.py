"""When a schedule is due: its slots, each with its share of the jitter.

Pure: the same arguments give the same instants on every machine that has the same zone data. `check` says what is
wrong with a schedule, `parse_endless` reads the text form of an endless trigger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime

from rota.core.time.check import check
from rota.core.time.endless import parse_endless
from rota.core.time.slots import duration, slot_after_end, slots_after
from rota.model.moment import micros, moment
from rota.model.trigger import Endless, Instant, Schedule

__all__ = ["after_end", "check", "parse_endless", "upcoming"]


def upcoming(schedule: Schedule, after: datetime, *, seed: str) -> Iterator[Instant]:
    """Every instant whose slot is later than `after`, in order.

    Nothing for triggers that follow the end of a run (see `after_end`) and for those that are never due by themselves.
    """
    slots = slots_after(schedule, micros(after), seed=seed)
    return _spread(slots, duration(schedule.jitter_s), seed) if schedule.jitter_s else map(_on_time, slots)


def after_end(schedule: Schedule, ended_at: datetime, *, seed: str) -> Instant | None:
    """When a job whose trigger follows ends is due again after a run that ended at `ended_at`."""
    slot = slot_after_end(schedule, micros(ended_at), seed=seed)
    if slot is None:
        return None
    if isinstance(schedule.rule, Endless):
        return _on_time(slot)  # jitter could carry it out of its hours
    return _late(slot, _share(seed, slot, duration(schedule.jitter_s)))


def _spread(slots: Iterator[int], jitter: int, seed: str) -> Iterator[Instant]:
    """Delay each slot by its share of the jitter, but never as far as the next slot."""
    slot = next(slots, None)
    while slot is not None:
        following = next(slots, None)
        room = jitter if following is None else min(jitter, following - slot)
        yield _late(slot, _share(seed, slot, room))
        slot = following


def _share(seed: str, slot: int, room: int) -> int:
    """A part of the room, less than the whole; the same for the same seed and slot everywhere."""
    known = hashlib.blake2b(f"{seed}\0{slot}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(known, "big") * room) >> 64


def _on_time(slot: int) -> Instant:
    at = moment(slot)
    return Instant(slot_at=at, due_at=at)


def _late(slot: int, by: int) -> Instant:
    return Instant(slot_at=moment(slot), due_at=moment(slot + by))
