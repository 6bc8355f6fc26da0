"""The schedule of a job: which trigger is given, what may stand beside it, and what the core says about its times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rota.core.time import instants
from rota.definitions.calendars import Calendars
from rota.definitions.display import listed
from rota.definitions.report import Report
from rota.definitions.spec import JobShape
from rota.errors import InvalidInput
from rota.model.job import JobName
from rota.model.trigger import Calendar, Cron, Delay, Endless, Every, Manual, Once, Rule, Schedule, Window

TRIGGERS = ("cron", "every_s", "delay_s", "once_at", "window", "endless")
ZONED = ("cron", "window", "endless")
BESIDE = ("start_at", "end_at", "jitter_s", "calendar")


def schedule(
    name: JobName, shape: JobShape, data: dict[str, Any], calendars: Calendars, report: Report
) -> Schedule | None:
    """Read when a job is due; `shape` holds what is right in `data`."""
    given = [key for key in data if key in TRIGGERS]
    _refuse_several(given, TRIGGERS, report)
    _refuse_without(given, data, report)
    calendar = _calendar(shape, calendars, report)
    if len(given) > 1:
        return None
    try:
        rule = _rule(shape, shape.zone or "UTC") if given else Manual()
        if rule is None:
            return None
        found = Schedule(
            rule=rule,
            start_at=shape.start_at,
            end_at=shape.end_at,
            jitter_s=shape.jitter_s or 0.0,
            calendar=calendar,
        )
        instants.check(found, seed="/".join(name))
    except InvalidInput as error:
        report.adopt(error)
        return None
    return found


def _refuse_several(given: list[str], kinds: Iterable[str], report: Report) -> None:
    for key in given[1:]:
        report.add((key,), f"{given[0]} is given too; only one of {listed(kinds)} is allowed")


def _refuse_without(given: list[str], data: dict[str, Any], report: Report) -> None:
    """Refuse keys that mean nothing without a trigger, or with this one."""
    if "zone" in data and not set(given) & set(ZONED):
        report.add(("zone",), f"goes only with {listed(ZONED)}, and there is {listed(given) or 'none of them'}")
    if not given:
        for key in BESIDE:
            if key in data:
                report.add((key,), f"goes only with a trigger ({listed(TRIGGERS)}), and there is none")


def _calendar(shape: JobShape, calendars: Calendars, report: Report) -> Calendar | None:
    if shape.calendar is None:
        return None
    return calendars.find(shape.calendar, shape.zone, report.within("calendar"))


def _rule(shape: JobShape, zone: str) -> Rule | None:
    """The rule of the one trigger that is given; nothing if its value is wrong."""
    if shape.cron is not None:
        return Cron(expression=shape.cron, zone=zone)
    if shape.every_s is not None:
        return Every(every_s=shape.every_s)
    if shape.delay_s is not None:
        return Delay(delay_s=shape.delay_s)
    if shape.once_at is not None:
        return Once(once_at=shape.once_at)
    if shape.endless is not None:
        return Endless(paces=instants.parse_endless(shape.endless), zone=zone)
    return _window(shape, zone)


def _window(shape: JobShape, zone: str) -> Window | None:
    found = shape.window
    if found is None:
        return None
    return Window(opens=found.opens, closes=found.closes, every_s=found.every_s, weekdays=found.weekdays, zone=zone)
