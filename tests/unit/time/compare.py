"""Compare the evaluator with the oracle of tests/oracles/time.py, expression by expression."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import takewhile
from typing import NamedTuple

from rota.core.time.instants import upcoming
from rota.model.trigger import Cron, Schedule
from tests.oracles.time import Diary, Wanted, spans

SEED = "tenant/project/job"


class Tally(NamedTuple):
    """How many (expression, zone, instant) were compared, how many instants that were, and which differed."""

    compared: int = 0
    instants: int = 0
    wrong: tuple[str, ...] = ()

    def __add__(self, other: object) -> Tally:
        assert isinstance(other, Tally)
        return Tally(self.compared + other.compared, self.instants + other.instants, self.wrong + other.wrong)


def fired(expression: str, zone: str, begin: int, end: int) -> list[int]:
    """What the product fires in (begin, end], in seconds from the epoch."""
    schedule = Schedule(rule=Cron(expression=expression, zone=zone))
    until = datetime.fromtimestamp(end, UTC)
    line = upcoming(schedule, datetime.fromtimestamp(begin, UTC), seed=SEED)
    return [int(it.slot_at.timestamp()) for it in takewhile(lambda it: it.slot_at <= until, line)]


def compare(expressions: Iterable[str], zone: str, around: Iterable[int]) -> Tally:
    """Compare what expressions fire in a zone around some instants."""
    wanted = [(expression, Wanted.of(expression, SEED)) for expression in expressions]
    tally = Tally()
    for at in around:
        diary = Diary(zone, at)
        for expression, meaning in wanted:
            begin, end = spans(meaning, at)
            expected = diary.fires(meaning, begin, end)
            got = fired(expression, zone, begin, end)
            wrong = () if got == expected else (_difference(expression, zone, at, got, expected),)
            tally += Tally(1, len(expected), wrong)
    return tally


def _difference(expression: str, zone: str, at: int, got: list[int], expected: list[int]) -> str:
    extra, missing = set(got) - set(expected), set(expected) - set(got)
    shown = [
        f"{sign}{datetime.fromtimestamp(it, UTC):%F %T}" for sign, its in (("+", extra), ("-", missing)) for it in its
    ]
    return f"{expression!r} in {zone} around {datetime.fromtimestamp(at, UTC):%F %T}: {sorted(shown)[:4]}"
