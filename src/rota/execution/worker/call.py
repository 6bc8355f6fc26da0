"""Calls the function of an item, and turns how it ended into what is reported."""

from __future__ import annotations

import inspect
import json
import traceback
from collections.abc import Callable
from typing import Any

from rota.execution.worker.clock import monotonic
from rota.execution.worker.item import WorkerItem
from rota.execution.worker_protocol import Failure, TaskFault
from rota.model.work import MESSAGE_MAX, RESULT_MAX, TRACEBACK_MAX

GIVEN = ("info", "number")
"""What an assigned item passes to its function, if the function has a parameter of that name."""
CAUSES_MAX = 50
_OWN = __file__.rpartition("/")[0]
_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


class Caller:
    """A function and the parameters that it takes."""

    __slots__ = ("_any", "_given", "_names", "_of_kind", "_required", "function", "is_async", "listens")

    def __init__(self, function: Callable[..., Any], *, listens: bool = False, of_kind: bool = False) -> None:
        """`listens`: it is a listener of an app. `of_kind`: it is the function of a kind of task, from a plugin."""
        self.function = function
        self.listens = listens
        self._of_kind = of_kind
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__ is as good
        )
        named = _named(function)
        self._any = named is None or any(each.kind is each.VAR_KEYWORD for each in named)
        plain = [each for each in named or () if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
        self._names = frozenset(each.name for each in plain)
        self._required = frozenset(each.name for each in plain if each.default is each.empty)
        self._given = tuple(name for name in GIVEN if name in self._names)

    def arguments(self, item: WorkerItem) -> dict[str, Any]:
        """The arguments for an item. Raises TypeError if the function cannot be called with them."""
        if self._of_kind:
            return {"config": item.order.config or {}, "params": item.params}
        arguments = dict(item.order.params) if item.order.params else {}
        if self._given and item.order.item_number is not None:
            known = {"info": item.info, "number": item.order.item_number}
            arguments |= {name: known[name] for name in self._given}
        if not self._any and not arguments.keys() <= self._names:
            raise TypeError(self._complaint("does not take", arguments.keys() - self._names))
        if not self._required <= arguments.keys():
            raise TypeError(self._complaint("is not given", self._required - arguments.keys()))
        return arguments

    def _complaint(self, what: str, names: frozenset[str] | set[str]) -> str:
        name = getattr(self.function, "__name__", "the function")
        takes = f"takes {', '.join(sorted(self._names))}" if self._names else "takes no parameters"
        return f"{name}() {what} {', '.join(sorted(names))}; it {takes}"


def _named(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """The parameters; none for functions whose signature is unknown, as in C."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return None


def encoded(value: object) -> str | None:
    """A result as JSON. Raises TaskFault if it is not JSON, or too large."""
    if value is None:
        return None
    try:
        text = _encode(value)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise TaskFault(
            "result",
            f"the result cannot be written as JSON ({_words(error)}); return only null, true, false, finite numbers, "
            "texts, lists and mappings of them",
        ) from None
    if size > RESULT_MAX:
        raise TaskFault(
            "result",
            f"the result takes {size} bytes as JSON; at most {RESULT_MAX} are kept. Write it to a file, a database or "
            "an object store, and return where it is",
        )
    return text


def failure(item: WorkerItem, error: BaseException) -> Failure:
    ended_s = monotonic()
    trace = _storable(traceback_text(error)[-TRACEBACK_MAX:])
    return Failure(item.number, item.started_s, ended_s, causes(error), described(error), _exit_code(error), trace)


def causes(error: BaseException) -> str:
    """The names by which a retry policy knows an exception: exit code, class, and the bases of the class."""
    if isinstance(error, TaskFault):
        return error.cause
    code = _exit_code(error)
    first = ["memory"] if isinstance(error, MemoryError) else [] if code is None else [str(code)]
    kinds = [kind.__name__ for kind in type(error).__mro__ if kind not in (BaseException, object)]
    return " ".join([*first, *kinds[:CAUSES_MAX]])


def described(error: BaseException) -> str:
    """An exception in a line or a few: its type and its text, bounded, and fit for every store."""
    if isinstance(error, TaskFault):
        return bounded_text(str(error))
    text = _words(error)
    name = type(error).__name__
    return bounded_text(f"{name}: {text}" if text else name)


def bounded_text(text: str) -> str:
    """A text that is not too long and holds nothing that a store refuses."""
    text = _storable(text[: MESSAGE_MAX + 1])
    return text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 1] + "…"


def _storable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def traceback_text(error: BaseException) -> str:
    """The traceback, without the frames of the worker."""
    if isinstance(error, TaskFault):
        return ""
    trace = at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename.startswith(_OWN) and at.tb_next is not None:
            trace = at.tb_next
        at = at.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, trace))
    except Exception:  # noqa: BLE001 - exceptions are user code too
        return f"{type(error).__name__}\n"


def succeeds(error: BaseException) -> bool:
    """True if the exception means success: `sys.exit()` or `sys.exit(0)`."""
    return isinstance(error, SystemExit) and error.code in (None, 0)


def _exit_code(error: BaseException) -> int | None:
    if isinstance(error, TaskFault):
        return error.code
    if not isinstance(error, SystemExit):
        return None
    return error.code & 0xFF if isinstance(error.code, int) else 1


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - exceptions are user code too
        return "(its text cannot be shown)"
