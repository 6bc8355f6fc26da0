"""What a channel for alarms says about itself. A plugin makes a subclass of `AlarmChannel`.

what a person wrote ── to(value) ──> Channel.to, stored with the rule ──> message ── send ──> the answer
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rota.model.alarm import Channel, Message
from rota.model.value import Value

if TYPE_CHECKING:
    from rota.ports import Clock

SEND_S = 30.0
"""How long one message may take to send, whatever the channel."""


class CourierSettings(Value, frozen=True, kw_only=True):
    """What the configuration of a node tells its channels: the mail server, whom a webhook may call, and what commands
    begin with."""

    smtp_host: str = ""
    smtp_port: int = 25
    smtp_user: str = ""
    smtp_password: str = ""
    smtp_from: str = ""
    smtp_tls: str = "auto"
    smtp_ca: str = ""
    hosts: tuple[str, ...] = ()
    """Private hosts that webhooks may reach."""
    environment: dict[str, str] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    user: str | None = None
    """As whom commands run; none: the user of the node."""
    state_dir: str = ""
    node: str = ""
    send_s: float = SEND_S


class AlarmChannel:
    """One way to reach people. Its name is the key under which a rule says whom to tell, and is stored with the rule.

    What only sending needs is imported in `send`: the check of a definition must stay cheap.
    """

    name: str
    signed: bool = False
    """Whether its rules have a secret, with which messages are signed."""

    def to(self, value: object) -> tuple[str, ...]:
        """Check whom a person wants to tell, and return what is stored. Raises ValueError with a text for people."""
        raise NotImplementedError

    def written(self, to: tuple[str, ...]) -> object:
        """The opposite of `to`: what a person would have written."""
        return "".join(to)

    async def send(self, settings: CourierSettings, clock: Clock, channel: Channel, message: Message) -> str:
        """Send one message and return the answer. Whatever this raises means that it was not delivered; the courier
        cancels it after `settings.send_s`."""
        raise NotImplementedError


def message_json(message: Message) -> bytes:
    """A message as JSON, for webhooks and commands."""
    return json.dumps(message.shape, ensure_ascii=False, allow_nan=False).encode()
