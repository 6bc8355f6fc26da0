"""An app: the jobs that one Python file defines, next to the functions that they run."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from datetime import date
from types import MappingProxyType
from typing import Any, TypeVar, Unpack, overload

from rota.client.options import CalendarOptions, TaskOptions
from rota.definitions import fields
from rota.definitions.calendars import Calendars
from rota.definitions.job import define
from rota.definitions.report import Report
from rota.definitions.words import shown
from rota.errors import InvalidInput
from rota.model.job import Definition, JobName

Function = TypeVar("Function", bound=Callable[..., object])


class App:
    """Jobs of one project. What is wrong with one is said at once, where it is defined."""

    def __init__(self, *, tenant: str = "default", project: str = "default") -> None:
        self._tenant = _name("tenant", tenant)
        self._project = _name("project", project)
        self._calendars: dict[str, dict[str, Any]] = {}
        self._jobs: dict[str, dict[str, Any]] = {}
        self._handlers: dict[str, Callable[..., object]] = {}

    @overload
    def task(self, function: Function, /) -> Function: ...

    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> Callable[[Function], Function]: ...

    def task(self, function: Any = None, /, **options: Any) -> Any:
        """Make a function a job: `@app.task(cron="0 3 * * *")`. The function itself stays as it is.

        The options are the keys of a job in YAML; `name` is the function's own name unless given. Without a trigger
        the job runs only when asked. Raises InvalidInput.
        """

        def decorate(function: Function) -> Function:
            self._add(function, options)
            return function

        return decorate if function is None else decorate(function)

    def calendar(self, name: str, /, **options: Unpack[CalendarOptions]) -> None:
        """Declare a calendar for the tasks below it. Raises InvalidInput."""
        report = Report()
        self._declared(None, Report()).declare(name, options, report.within("calendars", _text(name)))
        report.raise_if_any()
        self._calendars[name] = copy.deepcopy(dict(options))

    def definitions(self, today: date) -> tuple[Definition, ...]:
        """All jobs, with the calendars of countries looked up for the years around `today`."""
        report = Report()
        calendars = self._declared(today, report)
        found = [self._define(name, options, calendars, report) for name, options in self._jobs.items()]
        report.raise_if_any()
        return tuple(definition for definition in found if definition is not None)

    @property
    def handlers(self) -> Mapping[str, Callable[..., object]]:
        """The functions of the jobs, by name."""
        return MappingProxyType(self._handlers)

    def _add(self, function: Callable[..., object], options: dict[str, Any]) -> None:
        if not callable(function):
            raise InvalidInput.of("function", f"must be a function, not {shown(function)}")
        data = dict(options)
        name = data.pop("name", getattr(function, "__name__", None))
        report = Report()
        for field, reason in self._refusals(name, function):
            report.add((_text(name), field), reason)
        self._define(_text(name), data, self._declared(None, Report()), report)
        report.raise_if_any()
        self._jobs[name] = copy.deepcopy(data)
        self._handlers[name] = function

    def _refusals(self, name: object, function: Callable[..., object]) -> list[tuple[str, str]]:
        found = []
        if (reason := self._name_refusal(name)) is not None:
            found.append(("name", reason))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            found.append(("function", "is a generator; calling it would run nothing of it"))
        return found

    def _name_refusal(self, name: object) -> str | None:
        try:
            word = fields.name(name)
        except ValueError as error:
            return str(error)
        if word in self._jobs:
            return "there is a task of this name already"
        other = fields.twin(word, self._jobs)
        return None if other is None else f"the name differs from {other} only in capital and small letters"

    def _define(self, name: str, data: dict[str, Any], calendars: Calendars, report: Report) -> Definition | None:
        full_name = JobName(self._tenant, self._project, name)
        return define(full_name, data, calendars=calendars, report=report.within(name), handler=name)

    def _declared(self, today: date | None, report: Report) -> Calendars:
        calendars = Calendars(today)
        for name, options in self._calendars.items():
            calendars.declare(name, options, report.within("calendars", name))
        return calendars


def _name(field: str, value: object) -> str:
    try:
        return fields.name(value)
    except ValueError as error:
        raise InvalidInput.of(field, str(error)) from None


def _text(name: object) -> str:
    return name if isinstance(name, str) else shown(name)
