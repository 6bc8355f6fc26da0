"""When a job is due, worked out a second time and in the dullest way: every instant is tried.

Instants are microseconds from the epoch, UTC. It knows only the two rules that the firing tests use.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Every:
    """A fixed rate, counted from the epoch."""

    period_us: int


@dataclass(frozen=True, slots=True)
class Cron:
    """Six fields, seconds first, in UTC; each field is `*`, `*/n` or a list of numbers, and the last three are `*`."""

    expression: str


Rule = Every | Cron


def slots(rule: Rule, after: int, until: int) -> Iterator[int]:
    """The slots in (after, until], in order."""
    if isinstance(rule, Every):
        slot = 0 if after < 0 else after - after % rule.period_us + rule.period_us
        while slot <= until:
            yield slot
            slot += rule.period_us
        return
    fields = rule.expression.split()
    assert len(fields) == 6, f"{rule.expression!r} has not six fields"
    assert fields[3:] == ["*", "*", "*"], f"{rule.expression!r} restricts days, which this oracle does not know"
    for second in range(after // SECOND + 1, until // SECOND + 1):
        wall = time.gmtime(second)
        if all(map(_matches, fields, (wall.tm_sec, wall.tm_min, wall.tm_hour))):
            yield second * SECOND


def _matches(field: str, value: int) -> bool:
    if field == "*":
        return True
    if field.startswith("*/"):
        return value % int(field[2:]) == 0
    return value in map(int, field.split(","))
