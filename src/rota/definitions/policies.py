"""Misfire and overlap: which keys go with which policy, and what an overlap key may say."""

from __future__ import annotations

import re

from rota.definitions.display import listed, shown, suggestion
from rota.definitions.report import Report
from rota.definitions.spec import KEY_MAX, MisfireShape, OverlapShape
from rota.model.job import Misfire, MisfirePolicy, Overlap, OverlapPolicy
from rota.model.value import Json

_dollar = re.compile(r"\$(?:\{(?P<name>[^{}]*)\}|(?P<literal>\$))?")


def misfire(shape: MisfireShape, report: Report) -> Misfire:
    if shape.policy is not MisfirePolicy.ALL:
        for key in sorted(shape.model_fields_set & {"count_max", "per_s"}):
            report.add((key,), f"goes only with the policy all, not with {shape.policy}")
    return Misfire(policy=shape.policy, grace_s=shape.grace_s, count_max=shape.count_max, per_s=shape.per_s)


def overlap(shape: OverlapShape, params: dict[str, Json] | None, report: Report) -> Overlap:
    """Without `params` (they are wrong themselves) the names in the key are not checked."""
    _only_with(shape, "live_max", OverlapPolicy.ALLOW, report)
    _only_with(shape, "queue_max", OverlapPolicy.QUEUE, report)
    if shape.policy is OverlapPolicy.ALLOW and "live_max" not in shape.model_fields_set:
        report.add(("live_max",), "is missing; say how many runs may be live at a time, from 1 to 10000")
    if shape.key is not None:
        _check_key(shape.key, params, report.within("key"))
    return Overlap(policy=shape.policy, live_max=shape.live_max, queue_max=shape.queue_max, key=shape.key)


def _only_with(shape: OverlapShape, key: str, policy: OverlapPolicy, report: Report) -> None:
    if key in shape.model_fields_set and shape.policy is not policy:
        report.add((key,), f"goes only with the policy {policy}, not with {shape.policy}")


def _check_key(key: str, params: dict[str, Json] | None, report: Report) -> None:
    if not key.isprintable():
        report.add((), f"must be printable text, not {shown(key)}")
    filled = key
    for match in _dollar.finditer(key):
        reason = _refusal(match, params)
        if reason is not None:
            report.add((), reason)
        elif match["name"] is not None and params is not None:
            filled = filled.replace(match[0], str(params[match["name"]]))
    if len(filled) > KEY_MAX or not filled.isprintable():
        report.add((), f"must be printable and have at most {KEY_MAX} characters when its parameters are filled in")


def _refusal(match: re.Match[str], params: dict[str, Json] | None) -> str | None:
    name = match["name"]
    if match["literal"]:
        return None
    if name is None:
        return "a $ must begin ${name}, a parameter, or be written $$"
    if params is None:
        return None
    if name not in params:
        known = f"; known are {listed(params)}" if params else "; params is empty"
        return f"there is no parameter {shown(name)}{suggestion(name, params) or known}"
    if not isinstance(params[name], str | int | float):
        return f"the parameter {name} is {shown(params[name])}; in a key it must be text, a number or true/false"
    return None
