"""All channels that this process knows: ours, and those of installed plugins (entry points `rota.channels`)."""

from __future__ import annotations

from rota.alarms.channels.channel import AlarmChannel
from rota.plugins import Registry

CHANNELS: Registry[AlarmChannel] = Registry(
    "rota.channels",
    "channel",
    {
        "mail": "rota.alarms.channels.mail:MailChannel",
        "webhook": "rota.alarms.channels.webhook:WebhookChannel",
        "command": "rota.alarms.channels.command:CommandChannel",
        "job": "rota.alarms.channels.job:JobChannel",
    },
)
