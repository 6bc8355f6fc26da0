"""Log lines: for people as `time level event key=value`, for programs as JSON. Passwords never get into them: every
value is masked before it is encoded. Nor do control characters that somebody else wrote."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

from rota.cli.output import plain, plain_json
from rota.core.masking import HIDDEN, is_secret_name, without_passwords

Event = MutableMapping[str, Any]


def start(log_format: str, *, sink: Callable[[str], None] | None = None) -> None:
    write = sink or _to_stderr
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.format_exc_info,
            _mask,
            _as_json if log_format == "json" else _as_text,
        ],
        logger_factory=lambda *_: _Lines(write),
        cache_logger_on_first_use=False,
    )


class _Lines:
    """What structlog writes to."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def msg(self, message: str) -> None:
        self._write(message)

    debug = info = warning = error = critical = msg


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _mask(_: object, __: str, event: Event) -> Event:
    return {name: HIDDEN if _is_secret(name, value) else _masked(value) for name, value in event.items()}


def _is_secret(name: str, value: object) -> bool:
    return isinstance(value, str) and bool(value) and is_secret_name(name)


def _masked(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(name): HIDDEN if _is_secret(str(name), it) else _masked(it) for name, it in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(it) for it in value]
    return without_passwords(str(value))


def _as_json(_: object, __: str, event: Event) -> str:
    return plain_json(json.dumps(event, ensure_ascii=False))


def _as_text(_: object, __: str, event: Event) -> str:
    at, level, what = event.pop("at"), event.pop("level"), event.pop("event")
    trace = event.pop("exception", None)
    pairs = "".join(f" {key}={_value(value)}" for key, value in event.items())
    return plain(f"{at} {level:<7} {what}{pairs}" + (f"\n{trace}" if trace else ""))


def _value(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if text and all(char.isprintable() and char not in " \"'=" for char in text) else json.dumps(text)
