"""The judge of rates: how many starts there were in any period, by the lines that the tasks themselves wrote.

A rate of `max` in `period_s` is broken at a start if, with it, more than `max` attempts have started within less than
`period_s`. Every attempt counts: those that were lost with their node, and those that follow on them. The period
slides; its two ends are starts. All starts are judged by one clock (CLOCK_MONOTONIC of the host). The product dates a
start just before the function is called, by a clock that agrees with it to a part in a thousand; `slack` is the part of
the period by which the first line of the function may come later than that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

SECOND_NS = 1_000_000_000
SLACK = 0.001


class TooMany(NamedTuple):
    """More starts than a rate allows, and in how short a time: from the first of them to the last."""

    starts: int
    in_s: float
    last_ns: int


def too_many(starts_ns: Iterable[int], most: int, period_s: float, slack: float = SLACK) -> list[TooMany]:
    """Every start that came too early after the one that is `most` before it."""
    starts = sorted(starts_ns)
    least_ns = period_s * (1 - slack) * SECOND_NS
    return [
        TooMany(most + 1, (last - first) / SECOND_NS, last)
        for first, last in zip(starts, starts[most:], strict=False)
        if last - first < least_ns
    ]
