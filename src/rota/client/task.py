"""A function that was made a task: it can be called here, or sent to be called by a node. Whoever sends it gets a
handle, by which the result is fetched when there is one."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

import msgspec

from rota.client.options import CallOptions, same_words
from rota.errors import InvalidInput, Problem, TaskFailed
from rota.model.run import Item
from rota.model.states import ItemState
from rota.model.value import Json

if TYPE_CHECKING:
    from rota.client.app import App
    from rota.client.asynchronous import RunView
    from rota.client.client import Client
    from rota.control.assigning import Assigned

P = ParamSpec("P")
R = TypeVar("R")


class Handle(Generic[R]):
    """A call that was sent. Wait for its result with `result(timeout=10)`, or with `await`."""

    def __init__(self, client: Client, run_id: int, item_id: int, *, what: str, convert: Callable[[Any], R]) -> None:
        self._client = client
        self._what = what
        self._convert = convert
        self.id = run_id
        """The run. Those of one `map` share it."""
        self.item_id = item_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._what}, run {self.id}, item {self.item_id}>"

    def result(self, timeout: float | None = None) -> R:
        """What the function returned, as soon as it has.

        Raises TaskFailed, with the reason and the remote traceback, if it did not succeed; TimeoutError, which says
        what the call waits for, after so many seconds. The call itself goes on then; see `cancel`.
        """
        return self._read(self._client.wait(self.id, [self.item_id], timeout, what=self._what)[0])

    def __await__(self) -> Generator[Any, None, R]:
        return self._awaited().__await__()

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return any(item.ended_at is not None for item in self.run().items if item.id == self.item_id)

    def run(self) -> RunView:
        """The run as it is now."""
        return self._client.run(self.id)

    def explain(self) -> list[str]:
        """Why it has not ended, in words."""
        return [it.text for it in self._client.explain(self.id).reasons if it.item_id in (None, self.item_id)]

    def cancel(self) -> None:
        """Cancel the run, with all calls of the same `map`: what has not started is gone, the rest is asked to stop."""
        self._client.cancel(self.id)

    async def _awaited(self) -> R:
        return self._read((await self._client.wait_async(self.id, [self.item_id], what=self._what))[0])

    def _read(self, item: Item) -> R:
        if item.state is ItemState.SUCCEEDED:
            return self._convert(item.value)
        told = {"state": str(item.state), "message": item.message or "", "traceback": item.traceback}
        raise TaskFailed(self._what, run_id=self.id, **told) from self._client.raised(item.id)


class MapHandle(Sequence[Handle[R]]):
    """The calls of one `map`, in their order: one run."""

    def __init__(self, handles: Sequence[Handle[R]]) -> None:
        self._handles = tuple(handles)
        self.id = self._handles[0].id
        """The run."""

    @overload
    def __getitem__(self, place: int) -> Handle[R]: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Handle[R]]: ...

    def __getitem__(self, place: int | slice) -> Handle[R] | Sequence[Handle[R]]:
        return self._handles[place]

    def __len__(self) -> int:
        return len(self._handles)

    def __repr__(self) -> str:
        return f"<MapHandle of {len(self)} calls, run {self.id}>"

    def result(self, timeout: float | None = None) -> list[R]:
        """What all of them returned, in their order. Raises as `Handle.result` does, for the first that failed; the
        time is for all together."""
        first = self._handles[0]
        ids = [it.item_id for it in self._handles]
        items = first._client.wait(self.id, ids, timeout, what=first._what)  # noqa: SLF001 - of the same module
        return [handle._read(item) for handle, item in zip(self._handles, items, strict=True)]  # noqa: SLF001

    def __await__(self) -> Generator[Any, None, list[R]]:
        return self._awaited().__await__()

    def cancel(self) -> None:
        """Cancel what has not started; ask the rest to stop."""
        self._handles[0].cancel()

    async def _awaited(self) -> list[R]:
        first = self._handles[0]
        ids = [it.item_id for it in self._handles]
        items = await first._client.wait_async(self.id, ids, what=first._what)  # noqa: SLF001
        return [handle._read(item) for handle, item in zip(self._handles, items, strict=True)]  # noqa: SLF001


class Delayable(Generic[P, R]):
    """A task that can be sent: `delay` and `map`, with `options` that differ from the task's own."""

    def __init__(
        self, app: App, name: str, function: Callable[..., Any], options: Mapping[str, Any] | None = None
    ) -> None:
        functools.update_wrapper(self, function)  # type: ignore[arg-type]  # it is called only by those below
        self._app = app
        self._options = dict(options or {})
        self.name = name
        """The name of the job."""
        self.function = function
        """The function as it was written."""

    def __repr__(self) -> str:
        return f"<task {self.name} of {self.function!r}>"

    def __reduce__(self) -> str:
        """A task is found by its name, as functions are."""
        return str(getattr(self, "__qualname__", self.name))

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Send one call, to be made by whichever node is free and has the task. Says nothing about when.

        Raises TypeError if the function does not take these arguments, InvalidInput if JSON cannot hold one of them;
        then nothing was sent.
        """
        arguments = [self._bound(args, kwargs)]
        return self._handles(self._app.client.call(*self._asked(arguments)))[0]

    async def delay_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """The same for programs with an event loop, which is not held up meanwhile."""
        arguments = [self._bound(args, kwargs)]
        return self._handles(await self._app.client.call_async(*self._asked(arguments)))[0]

    def map(self, *columns: Iterable[Any]) -> MapHandle[R]:
        """Send a call for each element, as one run: `add.map([1, 2], [10, 20])` calls `add(1, 10)` and `add(2, 20)`.

        All or none are sent, 10,000 at most.
        """
        return self._handles(self._app.client.call(*self._asked(self._bound_rows(columns))))

    async def map_async(self, *columns: Iterable[Any]) -> MapHandle[R]:
        """The same for programs with an event loop, which is not held up meanwhile."""
        return self._handles(await self._app.client.call_async(*self._asked(self._bound_rows(columns))))

    def options(self, **options: Unpack[CallOptions]) -> Delayable[P, R]:
        """The same task with other options for what is sent by it: `add.options(start_within_s=5).delay(1, 2)`."""
        given: dict[str, Any] = dict(options)
        if problems := same_words(given):
            raise InvalidInput(Problem(*it) for it in problems)
        changed: Delayable[P, R] = Delayable(self._app, self.name, self.function, {**self._options, **given})
        self._app.call_of(self.name, changed._options)  # what is wrong is said here
        return changed

    def _asked(self, arguments: Sequence[dict[str, Json]]) -> tuple[Any, ...]:
        return (*self._app.call_of(self.name, self._options), arguments)

    def _bound_rows(self, columns: Sequence[Iterable[Any]]) -> list[dict[str, Json]]:
        rows = list(columns)
        if not rows or any(isinstance(it, str | bytes) or not isinstance(it, Iterable) for it in rows):
            raise TypeError(f"{self.name}.map() takes a list for each parameter, like map([1, 2], [10, 20])")
        lists = [list(it) for it in rows]
        if len({len(it) for it in lists}) > 1:
            raise InvalidInput.of("map", f"the lists differ in length: {', '.join(str(len(it)) for it in lists)}")
        if not lists[0]:
            raise InvalidInput.of("map", "the list is empty; there is nothing to call")
        return [self._bound(row, {}) for row in zip(*lists, strict=True)]

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Json]:
        """The arguments by name, fit to be sent."""
        signature = _bare(inspect.signature(self.function))
        try:
            found = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.name}() {error}; it takes {signature}") from None
        named: dict[str, Any] = {}
        for parameter in signature.parameters.values():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise TypeError(
                    f"{self.name}() has the parameter {parameter}, which has no name to be sent by; make it an "
                    "ordinary parameter, a list for instance"
                )
            if parameter.name in found:
                value = found[parameter.name]
                named |= value if parameter.kind is parameter.VAR_KEYWORD else {parameter.name: value}
        return _sendable(named)

    def _handles(self, sent: Assigned) -> MapHandle[R]:
        convert = functools.partial(_converted, self._returns)
        what, client = str(self.name), self._app.client
        return MapHandle([Handle(client, sent.id, it.id, what=what, convert=convert) for it in sent.items])

    @functools.cached_property
    def _returns(self) -> Any:
        """What the function says that it returns."""
        try:
            return typing.get_type_hints(self.function).get("return", Any)
        except Exception:  # noqa: BLE001 - annotations are user code too, and may name what is not there
            return Any


class TaskFunction(Delayable[P, R]):
    """A task whose function is plain. Calling it calls the function, here and now."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)  # type: ignore[no-any-return]


class AsyncTaskFunction(Delayable[P, R]):
    """A task whose function is `async`. Calling it calls the function, here and now."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if mark := getattr(inspect, "markcoroutinefunction", None):  # from Python 3.12 on
            mark(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return self.function(*args, **kwargs)  # type: ignore[no-any-return]


def _bare(signature: inspect.Signature) -> inspect.Signature:
    """Without annotations: they decide nothing here, and make messages long."""
    plain = [it.replace(annotation=inspect.Parameter.empty) for it in signature.parameters.values()]
    return signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)


def _sendable(named: Mapping[str, Any]) -> dict[str, Json]:
    from rota.definitions import fields
    from rota.definitions.params import json, params

    plain = fields.checked(named, dict.fromkeys(named, lambda value: json(_plain(value))))
    return fields.one("arguments", params, plain)


def _plain(value: Any) -> Any:
    """Tuples are lists in JSON."""
    try:
        return _lists(value)
    except RecursionError:
        raise ValueError("is nested too deeply, or holds itself") from None


def _lists(value: Any) -> Any:
    match value:
        case tuple() | list():
            return [_lists(each) for each in value]
        case dict():
            return {key: _lists(each) for key, each in value.items()}
        case _:
            return value


def _converted(wanted: Any, value: Any) -> Any:
    """What came back through JSON, as the function said it would be: a tuple again, not a list. What does not fit comes
    as JSON has it."""
    if wanted is Any or value is None:
        return value
    try:
        return msgspec.convert(value, wanted, str_keys=True)
    except (msgspec.ValidationError, TypeError):
        return value
