"""Check what a request brings: the name of a job, the parameters and the idempotency key of a run."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping

from rota.definitions import fields
from rota.definitions.params import BYTES_MAX, params
from rota.definitions.report import shown
from rota.errors import InvalidInput, Problem
from rota.model.job import Definition, JobName
from rota.model.value import Json

KEY_MAX = 200


def job_name(text: str) -> JobName:
    """Read `name`, `project/name` or `tenant/project/name`."""
    parts = text.split("/")
    if len(parts) > 3:
        raise InvalidInput.of("name", f"must be name, project/name or tenant/project/name, not {shown(text)}")
    try:
        words = [fields.name(part) for part in parts]
    except ValueError as error:
        raise InvalidInput.of("name", str(error)) from None
    return JobName(*["default"] * (3 - len(words)), *words)


def strict_json(text: str) -> object:
    """Read JSON. Raises ValueError for keys that come twice, and for NaN and infinities."""
    if len(text.encode(errors="surrogatepass")) > BYTES_MAX:
        raise ValueError(f"takes more than {BYTES_MAX} bytes")
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_unknown)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("is nested too deep") from None


def run_params(definition: Definition, given: Mapping[str, object]) -> dict[str, Json]:
    """Check the parameters of one run: fit for JSON, and enough to fill the overlap key of its job."""
    clean = fields.one("params", params, dict(given))
    problems = list(_unfilled(definition, {**definition.params, **clean}))
    if problems:
        raise InvalidInput(problems)
    return clean


def run_key(key: str) -> str:
    if not 1 <= len(key) <= KEY_MAX or not key.isprintable() or key.strip() != key:
        raise InvalidInput.of("key", f"must be 1 to {KEY_MAX} printable characters without blanks around them")
    return key


def _unfilled(definition: Definition, merged: Mapping[str, Json]) -> list[Problem]:
    key = definition.overlap.key or ""
    found = []
    for name in string.Template(key).get_identifiers():
        if name not in merged:
            found.append(Problem(f"params.{name}", f"is missing; the overlap key {key!r} of the job needs it"))
        elif not isinstance(merged[name], str | int | float) or not str(merged[name]).isprintable():
            reason = "must be printable text, a number or true/false, because the overlap key of the job uses it"
            found.append(Problem(f"params.{name}", reason))
    return found


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made: dict[str, object] = {}
    for name, value in pairs:
        if name in made:
            raise ValueError(f"has the key {shown(name)} twice")
        made[name] = value
    return made


def _unknown(word: str) -> object:
    raise ValueError(f"holds {word}, which is not JSON")
