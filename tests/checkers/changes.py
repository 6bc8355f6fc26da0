"""What was asked of a job, against what its history says, and the spans that follow from both.

A change that was answered took effect exactly once, between the asking and the answer by the store's clock. One whose
answer was lost may have taken effect once before its asker gave up, or not at all: there, and only there, the history
decides. A line of the history that nobody asked for is a violation too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.checkers.firing import Span
from tests.checkers.slots import Rule

CREATED, CHANGED, PAUSED, RESUMED = "job.created", "job.changed", "job.paused", "job.resumed"


@dataclass(frozen=True, slots=True)
class Asked:
    """A change as its asker saw it, from the asking to the answer, or (not `sure`) to when the asker gave up. `rule` is
    the new rule of an apply. The next change of the same job is asked later than that."""

    kind: str
    asked: int
    answered: int
    rule: Rule | None = None
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Line:
    """A change as the store's history tells it."""

    kind: str
    at: int
    version: int


@dataclass(frozen=True, slots=True)
class Told:
    """What became of the changes of one job."""

    spans: tuple[Span, ...]
    problems: tuple[str, ...]


def told(asked: Sequence[Asked], lines: Sequence[Line]) -> Told:
    """Match the history with the asked changes, both in order, and draw the spans."""
    problems: list[str] = []
    matched: list[tuple[Asked, Line]] = []
    waiting = list(asked)
    for line in lines:
        while waiting and not _fits(waiting[0], line) and not waiting[0].sure:
            waiting.pop(0)
        if waiting and _fits(waiting[0], line):
            matched.append((waiting.pop(0), line))
        else:
            problems.append(f"nobody asked for {line}")
    problems += [f"answered, but not in the history: {it}" for it in waiting if it.sure]
    return Told(tuple(_spans(matched)), tuple(problems))


def _fits(asked: Asked, line: Line) -> bool:
    return asked.kind == line.kind and asked.asked <= line.at <= asked.answered


def _spans(matched: Sequence[tuple[Asked, Line]]) -> Iterator[Span]:
    rule: Rule | None = None
    since: int | None = None
    version: int | None = None
    paused = False
    for asked, line in matched:
        if since is not None and rule is not None:
            yield Span(rule, since, line.at, version)
        if asked.kind in (CREATED, CHANGED):
            rule = asked.rule
        else:
            paused = asked.kind == PAUSED
        since, version = (None if paused else line.at), line.version
    if since is not None and rule is not None:
        yield Span(rule, since, None, version)
