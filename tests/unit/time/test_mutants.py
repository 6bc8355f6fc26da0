"""P14: the comparison with the oracle is worth something only if it notices a broken evaluator. So break it."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from rota.core.time import cron, fields, slots, zones
from tests.oracles.expressions import expressions
from tests.oracles.time import changes, ordinary
from tests.unit.time.compare import compare

pytestmark = pytest.mark.prove

ZONES = ["America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia", "Europe/Dublin"]
FIXED = "wall = here.seen if at == here.since else max(wall, here.seen)"
FOUND = "return max(found - here.offset, here.since)"

Change = tuple[str, str]
MUTANTS: dict[str, tuple[ModuleType, *tuple[Change, ...]]] = {
    "a fixed time fires in both passes of a fold": (
        zones,
        (FIXED, "wall = here.seen if at == here.since and here.seen < wall else wall"),
    ),
    "a time in a gap is dropped": (zones, (FIXED, "wall = max(wall, here.seen)")),
    "a gap fires twice": (
        zones,
        (FIXED, "wall = here.seen if at <= here.since + 1 else max(wall, here.seen)"),
        (FOUND, "return max(found - here.offset, at)"),
    ),
    "every time in a gap fires, as late as it stood in the gap": (
        zones,
        (FOUND, "return found - here.offset if found >= here.opening else here.since + found - here.seen"),
    ),
    "a time in a gap fires a minute late": (
        zones,
        (FOUND, "return found - here.offset if found >= here.opening else here.since + 60"),
    ),
    "an interval skips the second pass of a fold": (zones, ("if fixed:", "if True:")),
    "the repeated end of a day is jumped over": (zones, ("if here.until - at <= _REACH_S:", "if here.until < 0:")),
    "a day must match both day fields": (
        cron,
        (
            "page.days(self._days) | page.weekdays(self._weekdays)",
            "page.days(self._days) & page.weekdays(self._weekdays)",
        ),
    ),
    "every other hour counts as an interval": (cron, ("len(self._hours) == 24", "len(self._hours) >= 12")),
    "nothing counts as an interval": (cron, ("len(self._hours) == 24", "False")),
    "the last weekday of a month is a week early": (
        cron,
        ("(self._length - first) // 7", "(self._length - first - 7) // 7"),
    ),
    "a range stops before its end": (fields, ("range(low, high + 1, step)", "range(low, max(high, low + 1), step)")),
    "Sunday is not 7": (fields, ("return number % 7", "return min(number, 6)")),
}


@pytest.fixture
def evaluator(monkeypatch: pytest.MonkeyPatch) -> Evaluator:
    return Evaluator(monkeypatch)


class Evaluator:
    """Builds the evaluator again from its source, with one thing changed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def rebuild(self, module: ModuleType, *changed: Change) -> None:
        rebuilt = {it: _rebuilt(it, changed if it is module else ()) for it in (zones, fields, cron)}
        for name in ("DAY", "FIELDS", "HOUR", "MINUTE", "MONTH", "SECOND", "WEEKDAY", "YEAR", "read"):
            setattr(rebuilt[cron], name, getattr(rebuilt[fields], name))
        self._monkeypatch.setattr(slots, "cron", rebuilt[cron])
        self._monkeypatch.setattr(slots, "wall_clock", rebuilt[zones].wall_clock)


def _rebuilt(module: ModuleType, changed: tuple[Change, ...]) -> ModuleType:
    source = inspect.getsource(module)
    for old, new in changed:
        assert source.count(old) == 1, f"{module.__name__} does not contain {old!r} once: adapt the mutant"
        source = source.replace(old, new)
    copy = ModuleType(module.__name__)
    exec(compile(source, f"<mutant of {module.__name__}>", "exec"), copy.__dict__)
    return copy


def _differences() -> list[str]:
    """Compare until something differs."""
    for zone in ZONES:
        found = [*changes(zone, 2010, 2012), *changes(zone, 2016, 2017)]
        for at in [change.at for change in found[:6]] + ordinary(found, 2011, 2):
            wrong = compare(expressions(115), zone, [at]).wrong
            if wrong:
                return list(wrong)
    return []


@pytest.mark.timeout(600)  # nothing but computing
def test_the_evaluator_rebuilt_without_a_change_agrees_with_the_oracle(evaluator: Evaluator) -> None:
    evaluator.rebuild(cron)
    assert _differences() == []


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_oracle_catches_that(mutant: str, evaluator: Evaluator) -> None:
    evaluator.rebuild(*MUTANTS[mutant])
    found = _differences()
    print(f"{mutant}: {found[:1]}")
    assert found
