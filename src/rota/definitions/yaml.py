"""Read jobs in YAML, strictly: the core types of YAML 1.2, one document, text keys, and the line of every value.

The text is taken apart into events by ruamel.yaml and put together here, so that nothing is ever constructed from a
tag, and an alias is refused before it could multiply anything. Dates and times stay text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from rota.definitions import fields
from rota.definitions.calendars import Calendars
from rota.definitions.characters import decoded, is_whole
from rota.definitions.job import define
from rota.definitions.report import Path, Report, field_text, one_line, shown
from rota.definitions.spec import FileShape
from rota.definitions.spec import read as read_shape
from rota.model.job import Definition, JobName

DEPTH_MAX = 50
DIGITS_MAX = 400
VALUES_MAX = 200_000
JOBS_MAX = 10_000
REFUSALS_MAX = 100

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_int = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_float = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_no_number = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def read_yaml(text: str | bytes, *, file: str | None, today: date) -> tuple[Definition, ...]:
    """Read the jobs of a document. Raises InvalidInput with all that is wrong, sorted by line; then nothing is read.

    Countries' calendars are looked up for the years around `today`.
    """
    report = Report(file=file)
    tree = read(text, report)
    report.raise_if_any()
    assert tree is not None, "a document is read, or there is a problem"
    report = Report(file=file, lines=tree.lines)
    definitions = _read_file(tree.data, report, today)
    report.raise_if_any()
    return definitions


def _read_file(data: object, report: Report, today: date) -> tuple[Definition, ...]:
    shape = read_shape(FileShape, data, report)
    if shape is None or len(shape.jobs) > JOBS_MAX:
        if shape is not None:
            report.add(("jobs",), f"has {len(shape.jobs)} jobs; at most {JOBS_MAX} are allowed")
        return ()
    calendars = Calendars(today)
    for name, content in (shape.calendars or {}).items():
        calendars.declare(name, content, report.within("calendars", name))
    return tuple(_jobs(shape, calendars, report.within("jobs")))


def _jobs(shape: FileShape, calendars: Calendars, report: Report) -> list[Definition]:
    found: list[Definition] = []
    seen: set[str] = set()
    for name, content in shape.jobs.items():
        if (reason := fields.name_refusal(name, seen)) is not None:
            report.add((name,), reason)
        seen.add(name)
        full_name = JobName(shape.tenant, shape.project, name)
        definition = define(
            full_name, content, calendars=calendars, report=report.within(name), alarms=shape.alarms or ()
        )
        if definition is not None:
            found.append(definition)
    return found


class Tree(NamedTuple):
    """The content of a document, and the line on which each value begins."""

    data: object
    lines: dict[Path, int]


class _Stop(Exception):
    """Raised when the rest of a document cannot be read."""


def read(source: str | bytes, report: Report) -> Tree | None:
    """Read a document; when anything is wrong, say so in the report and return nothing."""
    before = report.count
    text = decoded(source, report)
    if text is None:
        return None
    builder = _Builder(report)
    try:
        for event in _events(text, report):
            builder.take(event)
    except _Stop:
        return None
    if not builder.documents:
        report.add_at(1, "", "holds nothing")
    return Tree(builder.root, builder.lines) if report.count == before else None


def _events(text: str, report: Report) -> Iterator[Event]:
    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        report.add_at(line, "", f"is not valid YAML: {one_line(str(error.problem or error.context))}")
        raise _Stop from None
    except Exception as error:  # noqa: BLE001 - broken texts also make the scanner raise ValueError, IndexError, …
        report.add_at(None, "", f"is not valid YAML: {one_line(str(error)) or type(error).__name__}")
        raise _Stop from None


@dataclass(slots=True)
class _Open:
    """A mapping or list that is not complete yet."""

    holder: dict[str, object] | list[object]
    path: Path
    key: str | None = None


class _Builder:
    """Puts values together from events, without recursion."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._open: list[_Open] = []
        self._values = 0
        self._refusals = 0
        self.documents = 0
        self.root: object = None
        self.lines: dict[Path, int] = {}

    def take(self, event: Event) -> None:
        match event:
            case DocumentStartEvent():
                self._begin_document(event)
            case MappingEndEvent() | SequenceEndEvent():
                self._open.pop()
            case NodeEvent():
                self._values += 1
                if self._values > VALUES_MAX:
                    self._stop(event, "", f"holds more than {VALUES_MAX} keys and values; make several files of it")
                self._refuse_extras(event)
                self._take_node(event)

    def _begin_document(self, event: DocumentStartEvent) -> None:
        self.documents += 1
        if self.documents > 1:
            self._stop(event, "", "holds several documents (---); write one")
        if event.version or event.tags:
            self._add(event, "", "YAML directives (lines with %) are not supported")

    def _refuse_extras(self, event: Any) -> None:
        field = self._field()
        if isinstance(event, AliasEvent):
            self._add(event, field, f"aliases like *{one_line(str(event.anchor), length=40)} are not supported")
        elif event.anchor is not None:
            self._add(event, field, f"anchors like &{one_line(str(event.anchor), length=40)} are not supported")
        if getattr(event, "ctag", None) is not None:
            self._add(event, field, f"tags like {one_line(str(event.tag), length=60)} are not supported")

    def _take_node(self, event: NodeEvent) -> None:
        if self._expects_key():
            self._take_key(event)
        elif isinstance(event, MappingStartEvent):
            self._begin({}, event)
        elif isinstance(event, SequenceStartEvent):
            self._begin([], event)
        else:
            self._place(self._scalar(event) if isinstance(event, ScalarEvent) else None, event)

    def _expects_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].holder, dict) and self._open[-1].key is None

    def _take_key(self, event: NodeEvent) -> None:
        if not isinstance(event, ScalarEvent):
            self._stop(event, self._field(), "a key must be text, not a mapping, a list or an alias")
        key = self._scalar(event)
        if event.style is None and key == "<<":
            self._add(event, self._field(), "merge keys (<<) are not supported")
        if not isinstance(key, str):
            self._add(event, self._field(), f"a key must be text; write '{event.value}' in quotes")
            key = str(event.value)
        parent = self._open[-1]
        path = (*parent.path, key)
        if key in parent.holder:
            self._add(event, field_text(path), f"is given twice, first on line {self.lines[path]}")
        self.lines[path] = event.start_mark.line + 1
        parent.key = key

    def _begin(self, holder: dict[str, object] | list[object], event: NodeEvent) -> None:
        if len(self._open) >= DEPTH_MAX:
            self._stop(event, self._field(), f"is nested more than {DEPTH_MAX} levels deep")
        self._open.append(_Open(holder, self._place(holder, event)))

    def _place(self, value: object, event: NodeEvent) -> Path:
        """Put a value into the open mapping or list, and return its path."""
        path = self._path()
        self.lines.setdefault(path, event.start_mark.line + 1)
        if not self._open:
            self.root = value
            return path
        parent = self._open[-1]
        if isinstance(parent.holder, list):
            parent.holder.append(value)
        elif parent.key is not None:
            parent.holder[parent.key] = value
            parent.key = None
        return path

    def _path(self) -> Path:
        if not self._open:
            return ()
        parent = self._open[-1]
        if isinstance(parent.holder, list):
            return (*parent.path, len(parent.holder))
        return parent.path if parent.key is None else (*parent.path, parent.key)

    def _scalar(self, event: ScalarEvent) -> object:
        text = str(event.value)
        if not is_whole(text):
            self._add(event, self._field(), "holds NUL or half of a character (a lone surrogate)")
        if event.style is not None:
            return text
        try:
            return _resolved(text)
        except ValueError as error:
            self._add(event, self._field(), str(error))
            return text

    def _field(self) -> str:
        return field_text(self._path())

    def _add(self, event: Event, field: str, reason: str) -> None:
        self._report.add_at(event.start_mark.line + 1, field, reason)
        self._refusals += 1
        if self._refusals == REFUSALS_MAX:
            raise _Stop

    def _stop(self, event: Event, field: str, reason: str) -> NoReturn:
        self._add(event, field, reason)
        raise _Stop


def _resolved(text: str) -> object:
    """The value of a scalar without quotes, by the core schema of YAML 1.2."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _no_number.fullmatch(text):
        raise ValueError(f"{text} is not a number")
    if _int.fullmatch(text):
        return _whole_number(text)
    return _real_number(text) if _float.fullmatch(text) else text


def _whole_number(text: str) -> int:
    if len(text) > DIGITS_MAX:
        raise ValueError(f"is a number of more than {DIGITS_MAX} digits")
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    return int(text, base)


def _real_number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {shown(text)} is too large")
    return value
