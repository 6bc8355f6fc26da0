"""Rates: at most so many starts in any period. What must be remembered of the past is bounded: starts that are close
together are dated at the last of them, which can only delay, never allow one too many."""

from __future__ import annotations

import msgspec

from rota.model.work import Limit

GRAINS = 64
"""A period is remembered in at most about so many parts."""


def free_at(limit: Limit, now_us: int) -> int:
    """From when on the rate allows one more start."""
    assert limit.rate is not None
    period_us = round(limit.rate.period_s * 1_000_000)
    used = 0
    for at, count in reversed(limit.recent):
        if at > now_us + period_us:
            continue  # the clock was set back by more than a period: when it was is not known any more
        if at + period_us <= now_us:
            break
        used += count
        if used >= limit.rate.max:
            return at + period_us
    return now_us


def remember(limit: Limit, now_us: int) -> Limit:
    """The limit after one more start."""
    assert limit.rate is not None
    period_us = round(limit.rate.period_s * 1_000_000)
    kept = [(at, count) for at, count in limit.recent if now_us - period_us < at <= now_us + period_us]
    if (
        kept
        and now_us - kept[-1][0] < period_us // GRAINS
        and _grain(kept[-1][0], period_us) == _grain(now_us, period_us)
    ):
        kept[-1] = (now_us, kept[-1][1] + 1)
    else:
        kept.append((now_us, 1))
    return msgspec.structs.replace(limit, recent=tuple(kept))


def _grain(at: int, period_us: int) -> int:
    return at * GRAINS // period_us
