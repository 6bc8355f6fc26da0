"""How values are written for people: instants, durations, triggers, URLs."""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.control import Reason
    from rota.model.alarm import Channel
    from rota.model.job import JobName
    from rota.model.run import Item, Run
    from rota.model.trigger import Rule
    from rota.model.work import Limit, Rate

_MADE_UP = re.compile("[0-9a-f]{32}")
"""What a clock's token looks like."""


def iso(moment: datetime | None) -> str | None:
    """An instant for programs."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def short(moment: datetime | None) -> str:
    """An instant for people, in UTC."""
    return "-" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def duration(seconds: float) -> str:
    """A length of time in at most two units, or a part of a second."""
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
    """A length of time where there is little room: `4h 42m`, `12s`, `8ms`."""
    return re.sub(r"(\d) (\w)", r"\1\2", duration(seconds).replace("min", "m"))


def relative(moment: datetime, now: datetime) -> str:
    """How far away an instant is."""
    ahead = (moment - now).total_seconds()
    if abs(ahead) < 1:
        return "now"
    return f"in {_whole(ahead)}" if ahead > 0 else f"{_whole(-ahead)} ago"


def _whole(seconds: float) -> str:
    return duration(seconds) if seconds >= 10 else f"{int(seconds)} s"


def trigger(rule: Rule) -> str:
    """A trigger in a few words."""
    from rota.model import trigger as kind

    match rule:
        case kind.Cron(expression=expression, zone=zone):
            return f"cron {expression} {zone}"
        case kind.Every(every_s=every_s):
            return f"every {_seconds(every_s)}"
        case kind.Delay(delay_s=delay_s):
            return f"{_seconds(delay_s)} after the end"
        case kind.Once(once_at=once_at):
            return f"once at {short(once_at)}"
        case kind.Window(opens=opens, closes=closes, every_s=every_s, zone=zone):
            return f"{opens}-{closes} every {_seconds(every_s)} {zone}"
        case kind.Endless(paces=paces, zone=zone):
            return f"endless, {len(paces)} pace{'s' if len(paces) > 1 else ''} {zone}"
        case _:
            return "manual"


def _seconds(seconds: float) -> str:
    """A period exactly: whole units where they fit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def reason(run: Run) -> str:
    """Why a run was skipped, and how many slots it stands for."""
    return (run.reason or "") + (f" x{run.slots}" if run.slots > 1 else "")


def whose(run: Run, job: JobName | None) -> str:
    """What a run belongs to: its job, the task that was called, or the tenant it was assigned for."""
    if job is not None:
        return str(job)
    if run.work is None:
        return "-"
    return run.called or f"assigned for {run.work.tenant}"


def cause(run: Run) -> str:
    """Why there is a run; a call of a task is assigned like other work, but its caller has called it."""
    return "call" if run.called else str(run.cause)


def key(run: Run) -> str:
    """The key that somebody gave a run. Those that rota makes up, from the slot or by chance, tell nobody anything."""
    from rota.model.states import Cause

    own = run.key if run.work is None else run.key.removeprefix(run.work.key_prefix)
    return "" if run.cause is Cause.SLOT or _MADE_UP.fullmatch(own) else own


def number(item: Item | Reason) -> str:
    """The number that a client gave an item. That of a call was made up."""
    given = item.number or ""
    return "" if _MADE_UP.fullmatch(given.rpartition(".")[0]) else given


def arguments(info: str | None) -> str:
    """What a task was called with."""
    given = json.loads(info or "{}")
    return ", ".join(f"{name}={value!r}" for name, value in given.items()) or "none"


def limit_words(limit: Limit) -> str:
    """What a limit allows."""
    cap = "no cap" if limit.cap is None else f"at most {limit.cap} at a time"
    return cap if limit.rate is None else f"{cap}, {rate_words(limit.rate)}"


def rate_words(rate: Rate) -> str:
    return f"{count(rate.max, 'start')} in {_seconds(rate.period_s)}"


def size(octets: int) -> str:
    """A number of bytes for people."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if octets >= factor:
            return f"{octets / factor:.1f} {unit}"
    return f"{octets} B"


def channel_words(channel: Channel) -> str:
    """Where alarms go."""
    return shlex.join(channel.to) if channel.kind == "command" else channel.to[0]


def cut(text: str, length: int = 80) -> str:
    """The first line of a text, short, with nothing unprintable in it."""
    line = "".join(char if char.isprintable() else " " for char in text.strip().partition("\n")[0])
    whole = len(line) <= length and line == text.strip()
    return line if whole else line[: length - 1] + "…"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
