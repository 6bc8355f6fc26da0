"""Calendars by name: declared in a file or an app, put by value into the jobs that name them.

The public holidays of countries come from the optional package `holidays`, as plain lists of days.
"""

from __future__ import annotations

import importlib
from datetime import date
from typing import Any, NamedTuple

import msgspec

from rota.core.time import zones
from rota.definitions import fields
from rota.definitions.report import Report, shown, suggestion
from rota.definitions.spec import CalendarShape, read
from rota.definitions.times import ALL_WEEKDAYS
from rota.errors import InvalidInput
from rota.model.trigger import Calendar

CALENDARS_MAX = 1000

WEEKDAYS = Calendar(name="weekdays", weekdays=(0, 1, 2, 3, 4))
"""The calendar that is always there: Monday to Friday."""
YEARS_BACK = 1
YEARS_AHEAD = 5
_MAKE_UP_MEMORY = 5
"""A country that had make-up working days within so many years is taken to announce them every year."""


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
        return fields.name_refusal(name, self._known)

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


class _Declared(NamedTuple):
    """A calendar, and the zone that was written for it."""

    calendar: Calendar
    zone: str | None


def _zone_problem(name: str) -> InvalidInput | None:
    try:
        zones.zone(name)
    except InvalidInput as error:
        return error
    return None


class Country(NamedTuple):
    """The holidays of a country around one day."""

    weekdays: tuple[int, ...]
    closed: tuple[date, ...]
    open: tuple[date, ...]
    known_until: date


def country(code: str, today: date | None) -> Country | None:
    """Look a country up; without a day only whether it is known. Raises ValueError with a text for people."""
    package = _package()
    if code not in package.list_supported_countries(include_aliases=False):
        raise ValueError(
            f"{shown(code)} is not the code of a country with a known calendar, like CN{_nearest(package, code)}"
        )
    return None if today is None else _country(package, code, today)


def _package() -> Any:
    try:
        return importlib.import_module("holidays")
    except ImportError:
        raise ValueError("needs the extra 'calendars': pip install 'rota[calendars]'") from None


def _nearest(package: Any, code: str) -> str:
    """Suggest a code, also for who wrote the name of the country or its code in small letters."""
    names: dict[str, str] = {}
    for key, (_, short, *others) in package.registry.COUNTRIES.items():
        names |= {key.replace("_", " "): short, **{other.lower(): short for other in (short, *others)}}
    hint = suggestion(code.lower().strip(), names)
    word = hint.removeprefix("; did you mean ").removesuffix("?")
    return f"; did you mean {names[word]}?" if hint else ""


def _country(package: Any, code: str, today: date) -> Country:
    first, last = today.year - YEARS_BACK, today.year + YEARS_AHEAD
    found = package.country_holidays(code, years=range(first, last + 1), language="en_US", expand=False)
    weekend = found.weekend
    make_up = {year: _make_up_days(package, code, year) for year in range(today.year - _MAKE_UP_MEMORY, last + 1)}
    return Country(
        weekdays=tuple(day for day in range(7) if day not in weekend),
        closed=tuple(sorted(day for day in found if first <= day.year <= last)),
        open=tuple(sorted(day for year, days in make_up.items() if year >= first for day in days)),
        known_until=date(_last_known_year(found, make_up, last), 12, 31),
    )


def _make_up_days(package: Any, code: str, year: int) -> list[date]:
    found = package.country_holidays(code, years=year, expand=False)
    return [day for day in found.weekend_workdays if day.year == year]


def _last_known_year(found: Any, make_up: dict[int, list[date]], last: int) -> int:
    """The last year that the package does not estimate, and whose make-up days, where there are some, it has."""
    announced = [year for year, days in make_up.items() if days]
    estimated = [day.year for day, name in found.items() if "estimated" in name]
    end_year: int = found.end_year
    years: list[int] = [last, end_year, *announced[-1:], *(year - 1 for year in estimated)]
    return min(years)
