"""Log lines: for people as `time level event key=value`, for programs as JSON. Passwords never get into them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

from rota.cli.words import masked

Event = MutableMapping[str, Any]


def start(log_format: str, *, sink: Callable[[str], None] | None = None) -> None:
    """Send log lines to stderr, or to the sink."""
    write = sink or _to_stderr
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.format_exc_info,
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
        self._write(masked(message))

    debug = info = warning = error = critical = msg


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _as_json(_: object, __: str, event: Event) -> str:
    return json.dumps(event, default=str, ensure_ascii=False)


def _as_text(_: object, __: str, event: Event) -> str:
    at, level, what = event.pop("at"), event.pop("level"), event.pop("event")
    trace = event.pop("exception", None)
    pairs = "".join(f" {key}={_value(value)}" for key, value in event.items())
    return f"{at} {level:<7} {what}{pairs}" + (f"\n{trace}" if trace else "")


def _value(value: object) -> str:
    text = str(value)
    return text if text and all(char.isprintable() and char not in " \"'=" for char in text) else json.dumps(text)
