"""An app: the jobs that one Python file defines, next to the functions that they run, and who is told about items."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import date, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, overload

import msgspec

from rota.client.options import AlarmOptions, AssignOptions, CalendarOptions, TaskOptions, same_words
from rota.client.task import AsyncTaskFunction, Delayable, TaskFunction
from rota.definitions import fields
from rota.definitions.alarm import job_alarms
from rota.definitions.assignment import NOTICES, Call, call
from rota.definitions.calendars import Calendars
from rota.definitions.characters import is_plain
from rota.definitions.job import define
from rota.definitions.report import Report, shown
from rota.errors import InvalidInput, Problem
from rota.model.job import Definition, JobName, app_source, handler_name
from rota.model.listener import app_name, listener_name

if TYPE_CHECKING:
    from rota.client.client import Client
    from rota.control.assigning import Answer, Assigned
    from rota.model.work import Limit

STORE_MAX = 2000

Function = TypeVar("Function", bound=Callable[..., object])
P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorator(Protocol):
    """What `app.task` with options gives back."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # what returns a coroutine is meant to be awaited
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTaskFunction[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R]: ...


class App:
    """Jobs of one project. What is wrong with one is said at once, where it is defined.

    `name` is by what its jobs know that they are defined here; without one, it is the path of the file.
    `store` is the URL of the store that calls like `assign` go to; without one, that of the configuration.
    `alarms` says who is told of the tasks that do not say so themselves.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        tenant: str = "default",
        project: str = "default",
        store: str | None = None,
        alarms: Sequence[AlarmOptions] = (),
    ) -> None:
        self._alarms = fields.one("alarms", job_alarms, alarms)
        self._name = None if name is None else fields.one("name", fields.name, name)
        self._tenant = fields.one("tenant", fields.name, tenant)
        self._project = fields.one("project", fields.name, project)
        self._store = None if store is None else _url(store)
        self._calendars: dict[str, dict[str, Any]] = {}
        self._jobs: dict[str, dict[str, Any]] = {}
        self._defined: dict[str, Definition] = {}
        self._handlers: dict[str, Callable[..., object]] = {}
        self._listeners: dict[str, Callable[..., object]] = {}
        self._client: Client | None = None

    @overload
    def task(  # type: ignore[overload-overlap]  # what returns a coroutine is meant to be awaited
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTaskFunction[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> TaskFunction[P, R]: ...

    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...

    def task(self, function: Any = None, /, **options: Any) -> Any:
        """Make a function a job: `@app.task(cron="0 3 * * *")`. Calling it still calls the function; `delay` and `map`
        send it to be called by a node.

        The options are the keys of a job in YAML; `name` is the function's own name unless given, and `timeout` is
        another word for `timeout_s`. Without a trigger the job runs only when asked. Raises InvalidInput.
        """

        def decorate(function: Any) -> Any:
            plain = function.function if isinstance(function, Delayable) else function
            name = self._add(plain, options)
            kind = AsyncTaskFunction if inspect.iscoroutinefunction(plain) else TaskFunction
            return kind(self, name, plain)

        return decorate if function is None else decorate(function)

    def on_start(self, function: Function, /) -> Function:
        """Call this function when an item starts whose end the client reports. At most one; raises InvalidInput."""
        return self._listen("on_start", function)

    def on_fail(self, function: Function, /) -> Function:
        """Call this function when an assigned item has failed for good, after all retries. At most one; raises
        InvalidInput."""
        return self._listen("on_fail", function)

    def on_timeout(self, function: Function, /) -> Function:
        """Call this function when an assigned item has run out of time. At most one; raises InvalidInput."""
        return self._listen("on_timeout", function)

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

    @property
    def listeners(self) -> Mapping[str, Callable[..., object]]:
        """The functions that are told about items: `on_start`, `on_fail`, `on_timeout`, as far as there are any."""
        return MappingProxyType(self._listeners)

    @property
    def functions(self) -> Mapping[str, Callable[..., object]]:
        """All that a node can call, by the names under which it advertises them."""
        own = {handler_name(self._full_name(name)): function for name, function in self._handlers.items()}
        told = {listener_name(self._listening, name): function for name, function in self._listeners.items()}
        return MappingProxyType({**own, **told})

    @property
    def source(self) -> str:
        """By what its jobs know that they are defined here: `app NAME`, with the tenant and the project if they are not
        the default; empty if it has no name."""
        return "" if self._name is None else app_source(self._full_name(self._name))

    @property
    def store(self) -> str | None:
        """The URL of its store, if it was given one."""
        return self._store

    @property
    def client(self) -> Client:
        """Asks the store of this app; opened when it is first used."""
        if self._client is None:
            from rota.client.client import Client  # only who asks needs it

            self._client = Client(self._store)
        return self._client

    def lend(self, client: Client | None) -> Client | None:
        """Ask another client from now on; says which one it was. For testing kits."""
        was, self._client = self._client, client
        return was

    def assign(
        self,
        numbers: Sequence[str],
        infos: Sequence[Any] | None = None,
        *,
        tenant: str | None = None,
        handler: str | Callable[..., object] | None = None,
        **options: Unpack[AssignOptions],
    ) -> Assigned:
        """Assign items to a tenant, by default that of the app: one run, with one item for each number.

        A handler (a task of this app, or the name of another) does the work; without one, `on_start` is called and
        `finish` reports the end. The app's `on_fail` and `on_timeout` are told. See `AsyncClient.assign` for the rest.
        """
        told = [name for name in self._listeners if name in NOTICES]
        what = None if handler is None else self._handler_text(handler)
        more: dict[str, Any] = {"notify": told, "app": self._listening, **options}
        return self.client.assign(tenant or self._tenant, numbers, infos, handler=what, **more)

    def finish(
        self, item: int | str, token: int | None = None, *, result: Any = None, failed: str | None = None
    ) -> Answer:
        """Report the end of an item. See `AsyncClient.finish`."""
        return self.client.finish(item, token, result=result, failed=failed)

    def extend(self, item: int | str, seconds: float, token: int | None = None) -> datetime | None:
        """Give an item so much time from now; says until when. None: it is not under way any more."""
        return self.client.extend(item, seconds, token)

    def set_capacity(self, cap: int) -> Limit:
        """How many items may execute at a time in the whole cluster."""
        return self.client.set_capacity(cap)

    def _handler_text(self, handler: object) -> str:
        """The full name of a task of this app; other names as they are."""
        plain = handler.function if isinstance(handler, Delayable) else handler
        own = [name for name, function in self._handlers.items() if plain is function or plain == name]
        if own:
            return handler_name(self._full_name(own[0]))
        if not isinstance(handler, str):
            raise InvalidInput.of("handler", "must be a task of this app, or the name of one")
        return handler

    def call_of(self, name: str, options: Mapping[str, Any]) -> tuple[JobName, Call]:
        """How a call of one of the tasks is executed: as the task says, but for these options. Raises InvalidInput."""
        found = call(self._defined[name], options)
        told = tuple(it for it in self._listeners if it in NOTICES)
        listening = "" if self._listening == app_name(self._tenant) else self._listening
        work = msgspec.structs.replace(found.work, notify=told, app=listening)
        return self._full_name(name), found._replace(work=work)

    def _add(self, function: Callable[..., object], options: dict[str, Any]) -> str:
        if not callable(function):
            raise InvalidInput.of("function", _no_function(function))
        data = dict(options)
        name = data.pop("name", getattr(function, "__name__", None))
        report = Report()
        refusals = {"name": self._name_refusal(name), "function": GENERATOR if _is_generator(function) else None}
        for field, reason in [*refusals.items(), *same_words(data)]:
            if reason is not None:
                report.add((_text(name), field), reason)
        definition = self._define(_text(name), data, self._declared(None, Report()), report)
        report.raise_if_any()
        assert definition is not None, "a task is defined, or there is a problem"
        self._defined[definition.name] = definition
        self._jobs[definition.name] = copy.deepcopy(data)
        self._handlers[definition.name] = function
        return definition.name

    def _listen(self, kind: str, function: Function) -> Function:
        if not callable(function):
            raise InvalidInput.of(kind, _no_function(function))
        if _is_generator(function):
            raise InvalidInput.of(kind, GENERATOR)
        if kind in self._listeners:
            where = place(self._listeners[kind])
            raise InvalidInput.of(kind, f"there is a listener already, in {where}; an app has at most one")
        self._listeners[kind] = function
        return function

    def _name_refusal(self, name: object) -> str | None:
        if isinstance(name, str) and name in self._jobs:
            return f"there is a task of this name already, in {place(self._handlers[name])}"
        return fields.name_refusal(name, self._jobs)

    def _define(self, name: str, data: dict[str, Any], calendars: Calendars, report: Report) -> Definition | None:
        return define(
            self._full_name(name),
            data,
            calendars=calendars,
            report=report.within(name),
            handler=name,
            alarms=self._alarms,
        )

    @property
    def _listening(self) -> str:
        return app_name(self._tenant, self._project)

    def _full_name(self, name: str) -> JobName:
        return JobName(self._tenant, self._project, name)

    def _declared(self, today: date | None, report: Report) -> Calendars:
        calendars = Calendars(today)
        for name, options in self._calendars.items():
            calendars.declare(name, options, report.within("calendars", name))
        return calendars


def functions_of(apps: Sequence[App]) -> dict[str, Callable[..., object]]:
    """All that can be called of some apps, by advertised name. Raises InvalidInput, with both places, if two apps of
    one project have the same."""
    found: dict[str, Callable[..., object]] = {}
    problems = []
    for app in apps:
        for name, function in app.functions.items():
            if name in found:
                where = f"{place(found[name])} and {place(function)}"
                problems.append(Problem(name.removeprefix("listener:"), f"is there twice, in {where}"))
            found[name] = function
    if problems:
        raise InvalidInput(problems)
    return found


GENERATOR = "is a generator; calling it would run nothing of it"


def _is_generator(function: Callable[..., object]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def place(function: Callable[..., object]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return repr(function) if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _no_function(value: object) -> str:
    return f"must be a function, not {shown(value)}"


def _url(value: object) -> str:
    """Only a text: what it names is seen when it is used. It is not shown, as it may hold a password."""
    if not isinstance(value, str) or not value.strip() or len(value) > STORE_MAX or not is_plain(value):
        raise InvalidInput.of("store", f"must be a URL of at most {STORE_MAX} characters, like sqlite:///rota.db")
    return str(value)


def _text(name: object) -> str:
    return name if isinstance(name, str) else shown(name)
