"""A message as JSON, for webhooks and commands."""

from __future__ import annotations

import json

from rota.model.alarm import Message


def body(message: Message) -> bytes:
    return json.dumps(message.shape, ensure_ascii=False, allow_nan=False).encode()
