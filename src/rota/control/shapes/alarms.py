"""The JSON of alarms, their rules and who was told."""

from __future__ import annotations

from collections.abc import Iterable

from rota.control.alarms import RuleState
from rota.control.shapes.values import Shape, fields_of
from rota.model.alarm import Alarm, Delivery


def rule_shape(it: RuleState) -> Shape:
    rule, last = it.rule, it.last
    return {
        **fields_of(rule, "name", "scope", "kinds"),
        "channel": str(rule.channel.kind),
        "to": list(rule.channel.to),
        **fields_of(rule, "merge_s", "late_s", "since_at"),
        "pending": it.pending,
        "last": None if last is None else delivery_shape(last),
    }


def delivery_shape(it: Delivery) -> Shape:
    return fields_of(it, "rule", "tries", "arrived", "answer", "ended_at")


def alarm_shape(it: Alarm, told: Iterable[Delivery]) -> Shape:
    return {
        **fields_of(it, "key", "kind", "at", "scope", "text"),
        "open": it.is_open,
        "run": it.run_id,
        "told": [delivery_shape(one) for one in told],
    }
