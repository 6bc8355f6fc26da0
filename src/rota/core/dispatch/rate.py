"""Rates: at most so many starts in any period. A start that a round gave counts without end until it is known to have
begun, and from then on for one period: a process may take long to come up, and the rate is of starts, not of grants.
What must be remembered of the past is bounded: starts that are close together are dated at the last of them, which can
only delay, never allow one too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from rota.model.work import Limit, Rate

GRAINS = 64
"""A period is remembered in at most about so many parts."""

UNBEGUN = 1 << 62
"""The instant at which starts are remembered that are not known to have begun: the last of `recent`. Releases that do
not know it take it for an instant of a clock that was set back, and leave it out."""

LOOK_US = (50_000, 500_000)
"""How soon, at least and at most, a round looks again whether what it gave has begun, if the rate waits for that."""


def unbegun(limit: Limit) -> int:
    """How many starts were given and are not known to have begun."""
    return limit.recent[-1][1] if limit.recent and limit.recent[-1][0] == UNBEGUN else 0


def free_at(limit: Limit, now_us: int) -> int:
    """From when on the rate allows one more start; if that depends on what has not begun, when to look again."""
    assert limit.rate is not None
    period_us = _period_us(limit.rate)
    used = unbegun(limit)
    if used >= limit.rate.max:
        return now_us + min(max(period_us // GRAINS, LOOK_US[0]), LOOK_US[1])
    for at, count in reversed(_dated(limit)):
        if at > now_us + period_us:
            continue  # the clock was set back by more than a period: when it was is not known any more
        if at + period_us <= now_us:
            break
        used += count
        if used >= limit.rate.max:
            return at + period_us
    return now_us


def remember(limit: Limit, now_us: int) -> Limit:
    """The limit after one more start was given."""
    assert limit.rate is not None
    period_us = _period_us(limit.rate)
    kept: dict[int, tuple[int, int]] = {}
    for at, count in _dated(limit):
        if now_us - period_us < at <= now_us + period_us:
            grain = at * GRAINS // period_us
            kept[grain] = (at, count + kept.get(grain, (0, 0))[1])
    return msgspec.structs.replace(limit, recent=(*kept.values(), (UNBEGUN, unbegun(limit) + 1)))


def begin(limit: Limit, instants: Iterable[int]) -> Limit:
    """The limit when so many of the given starts are known to have begun, at these instants."""
    begun = Counter(instants)
    left = unbegun(limit) - begun.total()
    dated = sorted((Counter(dict(_dated(limit))) + begun).items())
    return msgspec.structs.replace(limit, recent=(*dated, *([(UNBEGUN, left)] if left > 0 else [])))


def _dated(limit: Limit) -> Sequence[tuple[int, int]]:
    return limit.recent[:-1] if unbegun(limit) else limit.recent


def _period_us(rate: Rate) -> int:
    return round(rate.period_s * 1_000_000)
