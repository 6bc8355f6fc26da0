"""Mail: one plain text in UTF-8, sent by the SMTP server of the configuration."""

from __future__ import annotations

from email.message import EmailMessage
from email.utils import format_datetime

from rota.alarms.channels.channel import AlarmChannel, CourierSettings
from rota.definitions.characters import is_plain
from rota.definitions.report import shown
from rota.errors import Undelivered
from rota.model.alarm import Channel, Message
from rota.model.node import is_this_host
from rota.ports import Clock

MAIL_MAX = 254


class MailChannel(AlarmChannel):
    """`mail: ops@example.com`"""

    name = "mail"

    def to(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, str) or len(value) > MAIL_MAX or not is_plain(value):
            raise ValueError(f"must be one mail address, not {shown(value)}")
        name, at, host = value.rpartition("@")
        if not at or not name or not host or set(' \t,;<>()[]"\\:') & set(value) or "@" in name:
            raise ValueError(f"must be one mail address like ops@example.com, not {shown(value)}")
        return (value,)

    async def send(self, settings: CourierSettings, clock: Clock, channel: Channel, message: Message) -> str:
        """Hand the message to the server, and return what it says."""
        import aiosmtplib

        if not settings.smtp_host:
            raise Undelivered("this node knows no mail server; set alarm.smtp_host and alarm.smtp_from")
        tls = tls_of(settings)
        refused, answer = await aiosmtplib.send(
            letter(settings, clock, channel, message),
            hostname=settings.smtp_host,
            port=settings.smtp_port,
            username=settings.smtp_user or None,
            password=settings.smtp_password or None,
            use_tls=tls == "tls",
            start_tls=tls == "starttls",
            cert_bundle=settings.smtp_ca or None,
            timeout=settings.send_s,
        )
        if refused:
            raise Undelivered("; ".join(f"{who}: {what.code} {what.message}" for who, what in refused.items()))
        return answer


def tls_of(settings: CourierSettings) -> str:
    """How to keep the connection secret. No password leaves this host as plain text."""
    stays_here = not settings.smtp_password or is_this_host(settings.smtp_host)
    if settings.smtp_tls == "auto":
        return "none" if stays_here else "starttls"
    if settings.smtp_tls == "none" and not stays_here:
        raise Undelivered(
            "alarm.smtp_tls is none, and the password would leave this host as plain text; set it to starttls or tls"
        )
    return settings.smtp_tls


def letter(settings: CourierSettings, clock: Clock, channel: Channel, message: Message) -> EmailMessage:
    """The letter. It has the same id when it is sent again, so that a reader sees it once."""
    sender = settings.smtp_from or f"rota@{settings.smtp_host}"
    made = EmailMessage()
    made["From"] = sender
    made["To"] = channel.to[0]
    made["Subject"] = " ".join(message.subject.split())
    made["Date"] = format_datetime(clock.wall())
    made["Message-ID"] = f"<{message.id}@{sender.rpartition('@')[2]}>"
    made["Auto-Submitted"] = "auto-generated"
    made["X-Rota-Alarm"] = str(message.kind)
    made.set_content(f"{message.text}\n\nSent by the rule {message.rule}; see: rota alarm list\n", charset="utf-8")
    return made
