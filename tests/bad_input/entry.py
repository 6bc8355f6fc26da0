"""One bad input, and its ways into the product."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any, NamedTuple

TODAY = date(2026, 11, 15)
GOOD: dict[str, Any] = {"cron": "0 3 * * *"}
RUNNER: dict[str, Any] = {"shell": ["true"]}

DROP = object()
"""As the value of a change: the key is left out."""


class Entry(NamedTuple):
    """What is wrong, the field that the error must name, and a word that its reason must contain.

    Either a whole text (`text`), or a change of a good job, which goes through YAML and, unless `yaml_only`, through
    the SDK as well. `field` is relative to the job; with a text, or where `whole`, it is the full name.
    """

    id: str
    field: str
    word: str
    change: Mapping[str, Any] = {}
    name: str = "job"
    calendars: Mapping[str, Any] = {}
    top: Mapping[str, Any] = {}
    text: str | bytes | None = None
    whole: bool = False
    yaml_only: bool = False
    sdk_only: bool = False

    @property
    def job(self) -> dict[str, Any]:
        """The job as changed, without a runner."""
        return {key: value for key, value in {**GOOD, **self.change}.items() if value is not DROP}


def field_entries(field: str, cases: Iterable[tuple[Any, str]], /, **others: Any) -> list[Entry]:
    """One field of a job, with several values."""
    beside, group = others.pop("beside", {}), others.pop("group", field)
    return [
        Entry(f"{group}-{number}", field, word, {**beside, field: value}, **others)
        for number, (value, word) in enumerate(cases)
    ]


def inner_entries(field: str, cases: Iterable[tuple[Any, str, str]], /, **others: Any) -> list[Entry]:
    """A field with keys inside: the value, the key that is wrong, and the word."""
    beside, group = others.pop("beside", {}), others.pop("group", field)
    return [
        Entry(
            f"{group}-{key or 'whole'}-{number}",
            f"{field}.{key}" if key else field,
            word,
            {**beside, field: value},
            **others,
        )
        for number, (value, key, word) in enumerate(cases)
    ]


def as_yaml(entry: Entry) -> str | bytes:
    """The document that carries an entry."""
    if entry.text is not None:
        return entry.text
    runners = {"shell", "python", "http"} & set(entry.change)
    job = entry.job if runners else {**entry.job, **RUNNER}
    lines = [f"{key}: {emitted(value)}" for key, value in entry.top.items()]
    lines += ["calendars:"] if entry.calendars else []
    lines += [f"  {emitted(name)}: {emitted(value)}" for name, value in entry.calendars.items()]
    lines += ["jobs:", f"  {emitted(entry.name)}:"]
    lines += [f"    {emitted(key)}: {emitted(value)}" for key, value in job.items()] or ["    {}"]
    return "\n".join(lines) + "\n"


def emitted(value: Any) -> str:
    """Write a value as YAML in one line."""
    match value:
        case str():
            return quoted(value)
        case dict():
            return "{" + ", ".join(f"{emitted(key)}: {emitted(part)}" for key, part in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(emitted, value)) + "]"
        case float() if not math.isfinite(value):
            return ".nan" if math.isnan(value) else f"{value:+}".replace("inf", ".inf")
        case datetime() | date():
            return quoted(value.isoformat())
        case _:
            return json.dumps(value)


def quoted(text: str) -> str:
    """Write a text in double quotes, with escapes for all that a file cannot hold."""
    return '"' + "".join(_char(char) for char in text) + '"'


def _char(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
