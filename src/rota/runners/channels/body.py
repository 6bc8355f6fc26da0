"""A message as JSON, for webhooks and commands."""

from __future__ import annotations

import json

from rota.model.alarm import Alarm, Message
from rota.model.value import Json


def body(message: Message) -> bytes:
    """All that there is to know, in one object."""
    made: dict[str, Json] = {
        "id": message.id,
        "rule": message.rule,
        "kind": str(message.kind),
        "count": message.count,
        "subject": message.subject,
        "text": message.text,
        "first": [_alarm(it) for it in message.first],
    }
    return json.dumps(made, ensure_ascii=False, allow_nan=False).encode()


def _alarm(alarm: Alarm) -> dict[str, Json]:
    return {
        "key": alarm.key,
        "at": alarm.at.isoformat(),
        "scope": alarm.scope,
        "text": alarm.text,
        "run": alarm.run_id,
        "data": alarm.data,
    }
