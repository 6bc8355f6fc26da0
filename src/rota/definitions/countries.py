"""The public holidays of countries, from the optional package `holidays`, as plain lists of days."""

from __future__ import annotations

import importlib
from datetime import date
from typing import Any, NamedTuple

from rota.definitions.display import shown, suggestion

YEARS_BACK = 1
YEARS_AHEAD = 5
_MAKE_UP_MEMORY = 5
"""A country that had make-up working days within so many years is taken to announce them every year."""


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
