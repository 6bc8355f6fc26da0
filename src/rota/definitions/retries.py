"""Read the parts of a retry policy: the pauses, and the names of failures."""

from __future__ import annotations

import re
from collections.abc import Callable

from rota.definitions import fields
from rota.definitions.display import shown

PAUSES_MAX = 100
CAUSES_MAX = 100
CODE_MAX = 999
"""Exit codes go up to 255, statuses of HTTP up to 599."""

_cause = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def pauses(high: float) -> Callable[[object], float | tuple[float, ...]]:
    """One pause, or a list of them."""
    pause = fields.number(0, high, "number of seconds")

    def read(value: object) -> float | tuple[float, ...]:
        if not isinstance(value, list | tuple):
            return pause(value)
        if not 1 <= len(value) <= PAUSES_MAX:
            raise ValueError(f"must be a list of 1 to {PAUSES_MAX} numbers of seconds, not {len(value)}")
        return tuple(pause(each) for each in value)

    return read


def causes(value: object) -> tuple[str, ...]:
    """Names of failures: exit codes, statuses, exceptions, `timeout`, `memory`."""
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= CAUSES_MAX:
        got = len(value) if isinstance(value, list | tuple) else shown(value)
        raise ValueError(f"must be a list of 1 to {CAUSES_MAX} failures like [75, ValueError, timeout], not {got}")
    return fields.once([_one(each) for each in value])


def _one(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= CODE_MAX:
        return str(int(value))
    if isinstance(value, str) and _cause.fullmatch(value):
        return str(value)
    raise ValueError(
        f"a failure must be an exit code or HTTP status (a number from 1 to {CODE_MAX}), an exception without its "
        f"module (ValueError), timeout or memory, not {shown(value)}"
    )
