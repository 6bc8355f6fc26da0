"""Format values for people: distances of instants, durations, runs, limits, sizes."""

from __future__ import annotations

import json
import re
import shlex
from datetime import datetime
from typing import TYPE_CHECKING

from rota.control.values import period

if TYPE_CHECKING:
    from rota.control import Reason
    from rota.model.alarm import Channel
    from rota.model.job import JobName
    from rota.model.run import Item, Run
    from rota.model.work import Limit, Rate

_MADE_UP = re.compile("[0-9a-f]{32}")
"""What a clock's token looks like."""


def duration(seconds: float) -> str:
    """Return a duration in at most two units, or in milliseconds."""
    if 0 < seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def compact(seconds: float) -> str:
    """Return a duration for narrow columns: `4h 42m`, `12s`, `8ms`."""
    return re.sub(r"(\d) (\w)", r"\1\2", duration(seconds).replace("min", "m"))


def relative(moment: datetime, now: datetime) -> str:
    """Return the distance of an instant from now: `in 5 min`, `2 h ago`."""
    ahead = (moment - now).total_seconds()
    if abs(ahead) < 1:
        return "now"
    return f"in {_whole(ahead)}" if ahead > 0 else f"{_whole(-ahead)} ago"


def _whole(seconds: float) -> str:
    return duration(seconds) if seconds >= 10 else f"{int(seconds)} s"


def reason(run: Run) -> str:
    """Return why a run was skipped, and how many slots it stands for."""
    return (run.reason or "") + (f" x{run.slots}" if run.slots > 1 else "")


def whose(run: Run, job: JobName | None) -> str:
    """What a run belongs to: its job, the task that was called, or the tenant it was assigned for."""
    if job is not None:
        return str(job)
    if run.work is None:
        return "-"
    return run.called or f"assigned for {run.work.tenant}"


def key(run: Run) -> str:
    """Return the key that a person or client gave a run; nothing for a key that rota generated."""
    from rota.model.states import Cause

    own = run.key if run.work is None else run.key.removeprefix(run.work.key_prefix)
    return "" if run.cause is Cause.SLOT or _MADE_UP.fullmatch(own) else own


def number(item: Item | Reason) -> str:
    """Return the number that a client gave an item; nothing for the generated number of a call."""
    given = item.number or ""
    return "" if _MADE_UP.fullmatch(given.rpartition(".")[0]) else given


def arguments(info: str | None) -> str:
    given = json.loads(info or "{}")
    return ", ".join(f"{name}={value!r}" for name, value in given.items()) or "none"


def limit_words(limit: Limit) -> str:
    cap = "no cap" if limit.cap is None else f"at most {limit.cap} at a time"
    return cap if limit.rate is None else f"{cap}, {rate_words(limit.rate)}"


def rate_words(rate: Rate) -> str:
    return f"{count(rate.max, 'start')} in {period(rate.period_s)}"


def size(octets: int) -> str:
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if octets >= factor:
            return f"{octets / factor:.1f} {unit}"
    return f"{octets} B"


def channel_words(channel: Channel) -> str:
    return shlex.join(channel.to) if channel.kind == "command" else channel.to[0]


def cut(text: str, length: int = 80) -> str:
    """The first line of a text, short, with nothing unprintable in it."""
    line = "".join(char if char.isprintable() else " " for char in text.strip().partition("\n")[0])
    whole = len(line) <= length and line == text.strip()
    return line if whole else line[: length - 1] + "…"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
