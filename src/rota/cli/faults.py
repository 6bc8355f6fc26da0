"""Turn errors into messages and exit codes; nothing else does."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from typing import NamedTuple

import click

from rota.cli.output import plain_json, say
from rota.core.masking import without_passwords
from rota.errors import (
    CoordinatorLost,
    CoordinatorRefused,
    CoordinatorUnavailable,
    InvalidInput,
    NotFound,
    Problem,
    Refused,
    RotaError,
    StoreDenied,
    StoreRefused,
    StoreUnavailable,
    Undelivered,
    Unreadable,
)

OK, BUG, BAD_INPUT, NOT_FOUND, REFUSED, UNAVAILABLE, STORE_REFUSED, UNHEALTHY = 0, 1, 2, 3, 4, 5, 6, 7
COORDINATOR_LOST, INTERRUPTED = 8, 130

EXIT_CODES = (
    (OK, "done"),
    (BUG, "a bug or something unexpected in rota"),
    (BAD_INPUT, "bad input or usage; nothing was changed"),
    (NOT_FOUND, "there is no such job, run, node, tenant or limit"),
    (REFUSED, "the present state forbids it"),
    (UNAVAILABLE, "the store, the coordinator or an alarm channel did not answer"),
    (
        STORE_REFUSED,
        "this store cannot be used: not durable, not migrated, too new, or it lets nobody in",
    ),
    (UNHEALTHY, "the doctor found something that does not work"),
    (
        COORDINATOR_LOST,
        "this node lost its coordinator, and `coordinator.on_lost` says exit; start it again",
    ),
    (INTERRUPTED, "interrupted: by Ctrl-C, by a no to a question, or because nobody read the output"),
)


class Fault(NamedTuple):
    """An error as it is shown: exit code, code for programs, problems, hint."""

    exit_code: int
    code: str
    problems: tuple[Problem, ...]
    hint: str = ""
    is_help: bool = False
    """Whether the hint is the help that was called for, and says all."""


_KINDS: tuple[tuple[type[RotaError], int, str, str], ...] = (
    (NotFound, NOT_FOUND, "not_found", ""),
    (Refused, REFUSED, "refused", ""),
    (StoreRefused, STORE_REFUSED, "store_refused", ""),
    (Unreadable, REFUSED, "unreadable", ""),
    (StoreDenied, STORE_REFUSED, "store_denied", "User, password, database and TLS are in store.url: rota config show"),
    (StoreUnavailable, UNAVAILABLE, "store_unavailable", "Is the database up, its URL right? See: rota config show"),
    (CoordinatorLost, COORDINATOR_LOST, "coordinator_lost", ""),
    (CoordinatorRefused, STORE_REFUSED, "coordinator_refused", ""),
    (Undelivered, UNAVAILABLE, "undelivered", ""),
    (
        CoordinatorUnavailable,
        UNAVAILABLE,
        "coordinator_unavailable",
        "Is the coordinator up, its URL right? See: rota config show",
    ),
)


def fault_of(error: BaseException) -> Fault:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]  # a group of tasks wraps what ended one of them
    match error:
        case InvalidInput(problems=problems):
            return Fault(BAD_INPUT, "invalid_input", problems)
        case click.Abort() | KeyboardInterrupt():
            return Fault(INTERRUPTED, "interrupted", (Problem("", "interrupted"),))
        case click.ClickException():
            return _usage(error)
        case RotaError():
            for kind, exit_code, code, hint in _KINDS:
                if isinstance(error, kind):
                    return Fault(exit_code, code, (Problem("", str(error)),), hint)
    text = f"unexpected {type(error).__name__}: {error}"
    return Fault(BUG, "bug", (Problem("", text),), "This is a bug in rota. Please report it, with what --debug prints.")


def tell(fault: Fault, *, as_json: bool) -> None:
    if as_json:
        from rota.control.values import error_shape

        shape = error_shape(fault.code, fault.problems, "" if fault.is_help else fault.hint)
        say(plain_json(json.dumps({"error": shape}, ensure_ascii=False)), file=sys.stderr)
        return
    for problem in () if fault.is_help else fault.problems:
        say(without_passwords(f"error: {problem}"), file=sys.stderr)
    if fault.hint:
        say(fault.hint, file=sys.stderr)


def tell_traceback(error: BaseException) -> None:
    say(without_passwords("".join(traceback.format_exception(error))), file=sys.stderr)


def _usage(error: click.ClickException) -> Fault:
    if isinstance(error, click.UsageError) and error.ctx is not None and _is_without_command(error):
        return Fault(BAD_INPUT, "usage", (Problem("", "a command is missing"),), error.ctx.get_help(), is_help=True)
    param = error.param if isinstance(error, click.BadParameter) else None
    hint, field = "", "" if param is None else param.human_readable_name
    if isinstance(param, click.Option):
        field = max(param.opts, key=len)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f"See: {error.ctx.command_path} --help"
    reason = error.message if isinstance(error, click.BadParameter) and error.message else error.format_message()
    return Fault(BAD_INPUT, "usage", (Problem(field, " ".join(reason.split())),), hint)


def _is_without_command(error: click.UsageError) -> bool:
    return isinstance(error, click.exceptions.NoArgsIsHelpError) or error.message == "Missing command."


def wants_json(arguments: Sequence[str]) -> bool:
    """True if JSON was asked for, also when the arguments cannot be parsed."""
    return "--json" in arguments
