"""Send a message by the channel of its rule, and turn whatever goes wrong into `Undelivered`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rota.errors import Undelivered
from rota.model.alarm import AlarmRule, Channel, ChannelKind, Message
from rota.ports import Clock
from rota.runners.channels.settings import CourierSettings

ANSWER_MAX = 500

Send = Callable[[CourierSettings, Clock, Channel, Message], Awaitable[str]]


class ChannelCourier:
    """All channels of a node (`ports.Courier`)."""

    def __init__(self, settings: CourierSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    async def send(self, rule: AlarmRule, message: Message) -> str:
        try:
            async with asyncio.timeout(self._settings.send_s):
                answer = await _sender(rule.channel.kind)(self._settings, self._clock, rule.channel, message)
        except TimeoutError:
            raise Undelivered(f"no answer within {self._settings.send_s:g} s") from None
        except Undelivered as error:
            raise Undelivered(_line(str(error))) from error
        except Exception as error:  # however it failed, it has not delivered
            raise Undelivered(_line(f"{type(error).__name__}: {error}")) from error
        return _line(answer)


def _sender(kind: ChannelKind) -> Send:
    """What a channel needs is imported when it is used: most nodes have one kind."""
    match kind:
        case ChannelKind.MAIL:
            from rota.runners.channels import mail

            return mail.send
        case ChannelKind.WEBHOOK:
            from rota.runners.channels import webhook

            return webhook.send
        case ChannelKind.COMMAND:
            from rota.runners.channels import command

            return command.send
        case ChannelKind.JOB:
            raise Undelivered("only a node, or whoever has its store, can start a job")


def _line(text: str) -> str:
    """One line of bounded length, fit for a column and a terminal."""
    return " ".join(text.split())[:ANSWER_MAX]
