"""How single values are written, in JSON and for people: instants, periods, triggers, causes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rota.model.run import Run
from rota.model.trigger import Cron, Delay, Endless, Every, Once, Rule, Window

Shape = dict[str, Any]


def iso(moment: datetime | None) -> str | None:
    """Return an instant for programs."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def short(moment: datetime | None) -> str:
    """Return an instant for people, in UTC."""
    return "-" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def period(seconds: float) -> str:
    """Return a period exactly, in whole units where they fit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def trigger(rule: Rule) -> str:
    """Describe a trigger in a few words."""
    match rule:
        case Cron(expression=expression, zone=zone):
            return f"cron {expression} {zone}"
        case Every(every_s=every_s):
            return f"every {period(every_s)}"
        case Delay(delay_s=delay_s):
            return f"{period(delay_s)} after the end"
        case Once(once_at=once_at):
            return f"once at {short(once_at)}"
        case Window(opens=opens, closes=closes, every_s=every_s, zone=zone):
            return f"{opens}-{closes} every {period(every_s)} {zone}"
        case Endless(paces=paces, zone=zone):
            return f"endless, {len(paces)} pace{'s' if len(paces) > 1 else ''} {zone}"
        case _:
            return "manual"


def cause(run: Run) -> str:
    """Say why a run exists. A call of a task is stored as an assignment, but people know it as a call."""
    return "call" if run.called else str(run.cause)


def lateness(run: Run) -> float:
    """Return how many seconds after its due instant a run was recorded."""
    return round((run.created_at - run.due_at).total_seconds(), 6)
