"""Instants as whole microseconds since the epoch in UTC: how they are reckoned with and stored.

Both ways are remembered for a while: a herd shares its instants.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@lru_cache(maxsize=8192)
def micros(at: datetime) -> int:
    """An instant as microseconds from the epoch."""
    return (at - _EPOCH) // _MICROSECOND


@lru_cache(maxsize=8192)
def moment(at: int) -> datetime:
    """Microseconds from the epoch as an instant in UTC."""
    return _EPOCH + timedelta(microseconds=at)
