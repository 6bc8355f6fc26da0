"""Instants as whole microseconds since the epoch in UTC: how they are reckoned with and stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """An instant as microseconds from the epoch."""
    return (at - _EPOCH) // _MICROSECOND


def moment(at: int) -> datetime:
    """Microseconds from the epoch as an instant in UTC."""
    return _EPOCH + timedelta(microseconds=at)
