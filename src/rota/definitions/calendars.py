"""Calendars by name: declared in a file or an app, put by value into the jobs that name them."""

from __future__ import annotations

from datetime import date

import msgspec

from rota.core.time import zones
from rota.definitions import fields
from rota.definitions.countries import country
from rota.definitions.display import suggestion
from rota.definitions.report import Report
from rota.definitions.spec import CalendarShape, read
from rota.definitions.times import ALL_WEEKDAYS
from rota.errors import InvalidInput
from rota.model.trigger import Calendar

CALENDARS_MAX = 1000

WEEKDAYS = Calendar(name="weekdays", weekdays=(0, 1, 2, 3, 4))
"""The calendar that is always there: Monday to Friday."""


class Calendars:
    """The calendars that the jobs of one source may name.

    Without a day (`today`), countries are only checked, and their calendars close nothing.
    """

    def __init__(self, today: date | None) -> None:
        self._today = today
        self._known: dict[str, _Declared | None] = {WEEKDAYS.name: _Declared(WEEKDAYS, None)}

    def declare(self, name: str, data: object, report: Report) -> None:
        """Add a calendar. One that is wrong is remembered as such, so that its jobs are not blamed too."""
        before = report.count
        reason = self._refusal(name)
        if reason is not None:
            report.add((), reason)
        made = self._make(name, data, report)
        if name != WEEKDAYS.name:
            self._known[name] = made if report.count == before else None

    def find(self, name: str, zone: str | None, report: Report) -> Calendar | None:
        """The calendar of that name. Its days are those of its own zone, else of the job's, else of UTC."""
        if name not in self._known:
            hint = suggestion(name, self._known) or "; declare it under calendars, or use weekdays"
            report.add((), f"there is no calendar {name}{hint}")
            return None
        found = self._known[name]
        if found is None:
            return None
        if zone is not None and _zone_problem(zone) is not None:
            zone = None  # the field zone reports it
        return msgspec.structs.replace(found.calendar, zone=found.zone or zone or "UTC")

    def _refusal(self, name: str) -> str | None:
        if name == WEEKDAYS.name:
            return "the name weekdays is taken by the calendar that is always there"
        if name in self._known:
            return f"there is a calendar {name} already"
        if len(self._known) > CALENDARS_MAX:
            return f"there are more than {CALENDARS_MAX} calendars"
        try:
            fields.name(name)
        except ValueError as error:
            return str(error)
        other = fields.twin(name, self._known)
        return other and f"the name differs from {other} only in capital and small letters"

    def _make(self, name: str, data: object, report: Report) -> _Declared | None:
        shape = read(CalendarShape, data, report)
        if shape is None:
            return None
        if not data:
            report.add((), "says nothing; give it country, weekdays, closed or open")
        if shape.zone is not None and (error := _zone_problem(shape.zone)) is not None:
            report.adopt(error)
        return _Declared(self._resolve(name, shape, report), shape.zone)

    def _resolve(self, name: str, shape: CalendarShape, report: Report) -> Calendar:
        closed, open_ = set(shape.closed or ()), set(shape.open or ())
        weekdays, known_until = shape.weekdays, None
        if shape.country is not None:
            try:
                found = country(shape.country, self._today)
            except ValueError as error:
                report.add(("country",), str(error))
                found = None
            if found is not None:
                weekdays = weekdays or found.weekdays
                open_ |= set(found.open) - closed
                closed |= set(found.closed)
                known_until = found.known_until
        return Calendar(
            name=name,
            weekdays=weekdays or ALL_WEEKDAYS,
            closed=tuple(sorted(closed)),
            open=tuple(sorted(open_)),
            known_until=known_until,
        )


class _Declared:
    """A calendar, and the zone that was written for it."""

    __slots__ = ("calendar", "zone")

    def __init__(self, calendar: Calendar, zone: str | None) -> None:
        self.calendar = calendar
        self.zone = zone


def _zone_problem(name: str) -> InvalidInput | None:
    try:
        zones.zone(name)
    except InvalidInput as error:
        return error
    return None
