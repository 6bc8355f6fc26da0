"""The JSON of alarms, their rules and who was told."""

from __future__ import annotations

from collections.abc import Iterable

from rota.control.alarms import RuleState
from rota.control.shapes.values import Shape, iso
from rota.model.alarm import Alarm, Delivery


def rule_shape(it: RuleState) -> Shape:
    rule, last = it.rule, it.last
    return {
        "name": rule.name,
        "scope": rule.scope,
        "kinds": [str(kind) for kind in rule.kinds],
        "channel": str(rule.channel.kind),
        "to": list(rule.channel.to),
        "merge_s": rule.merge_s,
        "late_s": rule.late_s,
        "since_at": iso(rule.since_at),
        "pending": it.pending,
        "last": None if last is None else delivery_shape(last),
    }


def delivery_shape(it: Delivery) -> Shape:
    return {
        "rule": it.rule,
        "tries": it.tries,
        "arrived": it.arrived,
        "answer": it.answer,
        "ended_at": iso(it.ended_at),
    }


def alarm_shape(it: Alarm, told: Iterable[Delivery]) -> Shape:
    return {
        "key": it.key,
        "kind": str(it.kind),
        "at": iso(it.at),
        "scope": it.scope,
        "text": it.text,
        "open": it.is_open,
        "run": it.run_id,
        "told": [delivery_shape(one) for one in told],
    }
