"""Show values from outside in messages for people: on one line, short, with nothing unprintable in them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

Path = tuple[str | int, ...]
"""Where a value stands in what a person wrote: keys, and indexes of lists."""

SHOWN_MAX = 60

_plain = re.compile(r"[A-Za-z0-9_.-]{1,100}")


def shown(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return _cut(repr(str(value)))
        case int() if value.bit_length() > 128:
            return "a huge number"
        case int() | float():
            return repr(value)
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _:
            return f"a value of type {type(value).__name__}"


def field_text(path: Path) -> str:
    """Write a path like `jobs.nightly-report.shell[2]`."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{_step(step)}" for step in path]
    return "".join(parts).removeprefix(".")


def one_line(text: str, *, length: int = 300) -> str:
    """Make a text of unknown origin fit to be shown: one line, printable."""
    flat = " ".join(text.split())
    clean = "".join(char if char.isprintable() else repr(char)[1:-1] for char in flat[: length + 1])
    return clean if len(clean) <= length else clean[:length] + "…"


def suggestion(word: object, known: Iterable[str]) -> str:
    """Offer the known word that is most like this one, if there is one; best one with the same first letter."""
    if not isinstance(word, str) or len(word) > 100:
        return ""
    found = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    found.sort(key=lambda each: each[:1] != word[:1])
    return f"; did you mean {found[0]}?" if found else ""


def listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def _step(step: str) -> str:
    return step if _plain.fullmatch(step) else _cut(repr(str(step)))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "…"
