"""How single values are written, in JSON and for people: instants, periods, triggers, causes, errors.

In the JSON of an answer every field is always there; instants are ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from rota.core.masking import without_passwords
from rota.errors import Problem
from rota.model.run import Run
from rota.model.trigger import Cron, Delay, Endless, Every, Once, Rule, Window

Shape = dict[str, Any]


def iso(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def fields_of(value: object, *names: str) -> Shape:
    """Return fields of a value under their own names, for programs."""
    return {name: _plain(getattr(value, name)) for name in names}


def _plain(value: object) -> object:
    match value:
        case datetime():
            return iso(value)
        case StrEnum():
            return str(value)
        case tuple():
            return [_plain(it) for it in value]
        case _:
            return value


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


def error_shape(code: str, problems: Iterable[Problem], hint: str = "") -> Shape:
    """A code for programs, every problem for people, and what to do if there is anything to say about it. No password
    of a URL gets into it."""
    told = [
        {name: without_passwords(it) if isinstance(it, str) else it for name, it in problem._asdict().items()}
        for problem in problems
    ]
    return {"code": code, "problems": told, **({"hint": hint} if hint else {})}
