"""The judge of execution: what ran when, by the lines that the tasks themselves wrote.

A task writes one line when it starts and one when it ends, with the instant of CLOCK_MONOTONIC, which all processes of
the host share. An attempt *executes* from its start line to its end line; without one, until its process was seen gone;
without that either, until the end of the observation. So an interval never ends before its process was last known to
live, and "nothing overlaps" is said only of processes that were seen gone in time. While a process is stopped from
outside, with its whole node, it executes nothing.

| verdict   | what it means                                                                                     |
|-----------|---------------------------------------------------------------------------------------------------|
| TWO-NODES | two attempts of one item execute at the same instant                                              |
| CAP       | more attempts execute at one instant than the limit of that name allows                           |
| TOKEN     | a later start of an item does not carry a higher token, or one attempt started twice              |

At equal instants ends come before starts. The share of time at a cap says whether a test of that cap had teeth.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

START, END = "start", "end"
GLOBAL = "global"


class Line(NamedTuple):
    """What a task wrote."""

    mono_ns: int
    run: int
    item: int
    attempt: int
    token: int
    pid: int
    tenant: str
    quota: str
    kind: str


class Gone(NamedTuple):
    """A process that was seen gone, and when."""

    pid: int
    mono_ns: int


class Stopped(NamedTuple):
    """A process that was stopped from outside for a while."""

    pid: int
    since_ns: int
    until_ns: int


class Interval(NamedTuple):
    """The time in which an attempt executed. `told` says whether its own line ended it."""

    item: int
    attempt: int
    tenant: str
    quota: str
    start_ns: int
    end_ns: int
    told: bool
    token: int = 0
    """Which tells two attempts of one number apart: a store that lost its history gives a number again."""


class Overlap(NamedTuple):
    """Two live attempts of one item."""

    item: int
    first: int
    second: int
    ns: int


class Excess(NamedTuple):
    """A time in which more executed than a limit allows: the most that did, and for how long it was too many."""

    limit: str
    cap: int
    most: int
    at_ns: int
    ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found. `attempts` counts the attempts that were judged."""

    attempts: int
    two_nodes: list[Overlap] = field(default_factory=list)
    caps: list[Excess] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)

    @property
    def kinds(self) -> dict[str, int]:
        return {"two_nodes": len(self.two_nodes), "caps": len(self.caps), "tokens": len(self.tokens)}

    @property
    def clean(self) -> bool:
        return not any(self.kinds.values())

    def __str__(self) -> str:
        return f"n={self.attempts} " + " ".join(f"{kind}={count}" for kind, count in self.kinds.items())


def parse(text: str) -> list[Line]:
    """Read the lines of a witness file. A line that is not whole is the end of a machine, not of a task: it counts as
    not written."""
    lines = [Line(**json.loads(line)) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
    return sorted(lines)


def intervals(
    lines: Sequence[Line], gone: Iterable[Gone], until_ns: int, stopped: Sequence[Stopped] = ()
) -> list[Interval]:
    """When each attempt executed, in the order of the starts; one that was stopped meanwhile, in pieces."""
    ends = {(line.item, line.token, line.attempt): line.mono_ns for line in lines if line.kind == END}
    deaths: dict[int, list[int]] = defaultdict(list)
    for death in sorted(gone, key=lambda it: it.mono_ns):
        deaths[death.pid].append(death.mono_ns)
    found = []
    for line in sorted(line for line in lines if line.kind == START):
        told = ends.get((line.item, line.token, line.attempt))
        seen = next((at for at in deaths[line.pid] if at >= line.mono_ns), until_ns)
        end = seen if told is None else told
        for since, until in _pieces(line.mono_ns, end, [it for it in stopped if it.pid == line.pid]):
            what = (line.item, line.attempt, line.tenant, line.quota)
            found.append(Interval(*what, since, until, told is not None, line.token))
    return found


def _pieces(start_ns: int, end_ns: int, stopped: Iterable[Stopped]) -> Iterator[tuple[int, int]]:
    for it in sorted(stopped, key=lambda it: it.since_ns):
        if start_ns < it.until_ns and it.since_ns < end_ns:
            if start_ns < it.since_ns:
                yield start_ns, it.since_ns
            start_ns = it.until_ns
    if start_ns < end_ns:
        yield start_ns, end_ns


def limits_of(interval: Interval) -> tuple[str, ...]:
    """The limits that an attempt counts against."""
    return GLOBAL, f"quota:{interval.tenant}/{interval.quota}"


def judge(
    lines: Sequence[Line],
    gone: Iterable[Gone],
    until_ns: int,
    caps: Mapping[str, int],
    *,
    limits: Callable[[Interval], Sequence[str]] = limits_of,
    stopped: Sequence[Stopped] = (),
) -> Verdict:
    """Judge everything that the lines tell, until an instant."""
    line = intervals(lines, gone, until_ns, stopped)
    return Verdict(
        attempts=len({(it.item, it.token, it.attempt) for it in line}),
        two_nodes=overlaps(line),
        caps=[excess for name, cap in caps.items() for excess in excesses(line, name, cap, limits=limits)],
        tokens=falling_tokens(lines),
    )


def overlaps(line: Iterable[Interval]) -> list[Overlap]:
    """Every pair of attempts of one item that execute at once."""
    by_item: dict[int, list[Interval]] = defaultdict(list)
    for interval in line:
        by_item[interval.item].append(interval)
    found = []
    for own in by_item.values():
        own.sort(key=lambda it: it.start_ns)
        for position, first in enumerate(own):
            for second in own[position + 1 :]:
                shared = min(first.end_ns, second.end_ns) - second.start_ns
                if shared > 0 and (first.token, first.attempt) != (second.token, second.attempt):
                    found.append(Overlap(first.item, first.attempt, second.attempt, shared))
    return found


def steps(line: Iterable[Interval]) -> list[tuple[int, int]]:
    """How many execute, as (instant, how many from then on), at every instant at which that changes."""
    change: Counter[int] = Counter()
    for interval in line:
        change[interval.start_ns] += 1
        change[interval.end_ns] -= 1
    count, found = 0, []
    for at in sorted(change):
        if change[at]:
            count += change[at]
            found.append((at, count))
    return found


def excesses(
    line: Iterable[Interval], limit: str, cap: int, *, limits: Callable[[Interval], Sequence[str]] = limits_of
) -> list[Excess]:
    """The times in which more than `cap` executed of what counts against a limit."""
    found: list[Excess] = []
    since: int | None = None
    most = 0
    for at, count in steps(it for it in line if limit in limits(it)):
        if count > cap:
            since, most = (at if since is None else since), max(most, count)
        elif since is not None:
            found.append(Excess(limit, cap, most, since, at - since))
            since, most = None, 0
    return found


def share_at(line: Iterable[Interval], cap: int, since_ns: int, until_ns: int) -> float:
    """The share of the time in which at least `cap` executed."""
    points = [*steps(line), (until_ns, 0)]
    full = sum(
        max(min(after, until_ns) - max(at, since_ns), 0) for (at, count), (after, _) in pairwise(points) if count >= cap
    )
    return full / (until_ns - since_ns)


def falling_tokens(lines: Iterable[Line]) -> list[str]:
    """The starts whose token is not higher than that of the start before, item by item."""
    last: dict[int, Line] = {}
    found = []
    for line in sorted(line for line in lines if line.kind == START):
        before = last.get(line.item)
        if before is not None and line.token <= before.token:
            found.append(f"item {line.item}: token {line.token} started after {before.token}")
        last[line.item] = line
    return found
