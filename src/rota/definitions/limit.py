"""Check limits: cap, weight and rate. Reads rates like `10/60` too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.definitions import fields
from rota.definitions.report import shown
from rota.definitions.spec import PAUSE_S_MAX
from rota.model.work import Rate

CAP_MAX = 1_000_000
WEIGHT_MAX = 1000
STARTS_MAX = 100_000

_cap = fields.whole(0, CAP_MAX)
_weight = fields.whole(1, WEIGHT_MAX)
_starts = fields.whole(1, STARTS_MAX)
_period = fields.number(0.1, PAUSE_S_MAX, "number of seconds")


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked fields of a limit; None means no cap or no rate. Raises InvalidInput."""
    return fields.checked(given, _READERS)


def check_names(given: Mapping[str, str]) -> None:
    """Check names of tenants, quotas and resources. Raises InvalidInput."""
    fields.checked(given, dict.fromkeys(given, fields.name))


def rate_of(value: object) -> Rate | None:
    """Read a rate: a `Rate`, a pair (starts, seconds), a mapping, or a text like `10/60`; nothing for none."""
    match value:
        case None:
            return None
        case Rate():
            starts, period = value.max, value.period_s
        case {"max": starts, "period_s": period, **rest} if not rest:
            pass
        case (starts, period):
            pass
        case str():
            starts, period = _split(value)
        case _:
            raise ValueError(f"must be a number of starts and a number of seconds, not {shown(value)}")
    return Rate(max=_starts(starts), period_s=_period(period))


def _split(text: str) -> tuple[int, float]:
    starts, slash, period = text.partition("/")
    try:
        return int(starts), float(period) if slash else 1.0
    except ValueError:
        raise ValueError(f"must be starts and seconds like 10/60, not {shown(text)}") from None


_READERS = {"cap": lambda value: None if value is None else _cap(value), "weight": _weight, "rate": rate_of}
