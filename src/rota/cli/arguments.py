"""Types and readers of options and arguments that several commands take. A reader reports every problem at once, by the
name of the option or argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rota.control import CAP_MAX, job_name, rate_from, strict_json
from rota.control.limits import KEEP
from rota.errors import InvalidInput, Problem
from rota.model.job import JobName

ID_MAX = 2**63 - 1
LIMIT_MAX = 10_000

LIMIT = click.IntRange(1, LIMIT_MAX)
RUN_ID = click.IntRange(1, ID_MAX)
WEIGHT = click.IntRange(1, 1000)


def cap(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Read `--cap`: a number, or none. Returns KEEP if it was not given."""
    if value is None:
        return KEEP
    if value == "none":
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 10 and int(value) <= CAP_MAX):
        raise click.BadParameter(f"must be a whole number from 0 to {CAP_MAX}, or none, not {value!r:.60}", ctx, param)
    return int(value)


def rate(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Read `--rate`: starts and seconds, or none. Returns KEEP if it was not given."""
    if value is None:
        return KEEP
    try:
        return None if value == "none" else rate_from(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


CAP_OPTION = click.option(
    "--cap", metavar="N|none", callback=cap, help="How many items may execute at a time; none: no limit."
)
RATE_OPTION = click.option(
    "--rate", metavar="N/SECONDS|none", callback=rate, help="How many items may start in so many seconds."
)


def names_of(texts: Sequence[str]) -> list[JobName]:
    """Read names of jobs; a name that comes twice counts once."""
    found: dict[JobName, None] = {}
    problems: list[Problem] = []
    for text in texts:
        try:
            found[job_name(text)] = None
        except InvalidInput as error:
            problems += error.problems
    if problems:
        raise InvalidInput(problems)
    return list(found)


def params_of(text: str | None, pairs: Sequence[str]) -> dict[str, object]:
    """The parameters of a run, from a JSON object and from `key=text` pairs; each is given once."""
    made = {} if text is None else _object(text)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidInput.of("--param", f"must be written KEY=TEXT, not {pair!r}")
        if name in made:
            raise InvalidInput.of("--param", f"{name!r} is given twice")
        made[name] = value
    return made


def _object(text: str) -> dict[str, object]:
    try:
        value = strict_json(text)
    except ValueError as error:
        raise InvalidInput.of("--params", str(error)) from None
    if not isinstance(value, dict):
        raise InvalidInput.of("--params", 'must be a JSON object like {"day": "2026-01-31"}')
    return value
