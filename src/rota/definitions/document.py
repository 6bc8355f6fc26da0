"""A YAML document with jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

from rota.definitions import fields, yaml
from rota.definitions.calendars import Calendars
from rota.definitions.job import define
from rota.definitions.report import Report
from rota.definitions.spec import FileShape, read
from rota.model.job import Definition, JobName

JOBS_MAX = 10_000


def read_yaml(text: str | bytes, *, file: str | None, today: date) -> tuple[Definition, ...]:
    """Read the jobs of a document. Raises InvalidInput with all that is wrong, sorted by line; then nothing is read.

    Countries' calendars are looked up for the years around `today`.
    """
    report = Report(file=file)
    tree = yaml.read(text, report)
    report.raise_if_any()
    assert tree is not None, "a document is read, or there is a problem"
    report = Report(file=file, lines=tree.lines)
    definitions = _read_file(tree.data, report, today)
    report.raise_if_any()
    return definitions


def _read_file(data: object, report: Report, today: date) -> tuple[Definition, ...]:
    shape = read(FileShape, data, report)
    if shape is None or len(shape.jobs) > JOBS_MAX:
        if shape is not None:
            report.add(("jobs",), f"has {len(shape.jobs)} jobs; at most {JOBS_MAX} are allowed")
        return ()
    calendars = Calendars(today)
    for name, content in (shape.calendars or {}).items():
        calendars.declare(name, content, report.within("calendars", name))
    return tuple(_jobs(shape, calendars, report.within("jobs")))


def _jobs(shape: FileShape, calendars: Calendars, report: Report) -> list[Definition]:
    refuse = _name_guard()
    found = []
    for name, content in shape.jobs.items():
        reason = refuse(name)
        if reason is not None:
            report.add((name,), reason)
        full_name = JobName(shape.tenant, shape.project, name)
        definition = define(
            full_name, content, calendars=calendars, report=report.within(name), alarms=shape.alarms or ()
        )
        if definition is not None:
            found.append(definition)
    return found


def _name_guard() -> Callable[[object], str | None]:
    """Return a check of names that refuses a name it has seen before."""
    seen: dict[str, str] = {}

    def refusal(name: object) -> str | None:
        try:
            word = fields.name(name)
        except ValueError as error:
            return str(error)
        other = seen.setdefault(word.lower(), word)
        return None if other == word else f"the name differs from {other} only in capital and small letters"

    return refusal
