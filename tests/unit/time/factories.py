"""Small makers of schedules and instants for the tests of time."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Any

from rota.core.time.instants import upcoming
from rota.model.trigger import Cron, Schedule
from tests.oracles.time import zone_info

NEW_YORK = "America/New_York"


def utc(text: str) -> datetime:
    """Read `2026-03-08 07:00`, as UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def cron(expression: str, zone: str = "UTC", **bounds: Any) -> Schedule:
    return Schedule(rule=Cron(expression=expression, zone=zone), **bounds)


def slots(schedule: Schedule, after: str, number: int, *, seed: str = "seed") -> list[datetime]:
    return [it.slot_at for it in islice(upcoming(schedule, utc(after), seed=seed), number)]


def local(schedule: Schedule, after: str, number: int, zone: str) -> list[str]:
    """The next slots as a wall clock shows them, with the offset in hours."""
    info = zone_info(zone)
    return [f"{it.astimezone(info):%d %H:%M%z}".removesuffix("00") for it in slots(schedule, after, number)]
