"""Sends messages by the channel that a rule names, and turns whatever goes wrong into `Undelivered`."""

from __future__ import annotations

import asyncio

from rota.alarms.channels.channel import CourierSettings
from rota.alarms.channels.registry import CHANNELS
from rota.errors import InvalidInput, Undelivered
from rota.model.alarm import AlarmRule, Message
from rota.ports import Clock

ANSWER_MAX = 500


class ChannelCourier:
    """All channels of a node (`ports.Courier`)."""

    def __init__(self, settings: CourierSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    async def send(self, rule: AlarmRule, message: Message) -> str:
        try:
            async with asyncio.timeout(self._settings.send_s):
                channel = CHANNELS.find(rule.channel.kind)  # loaded when it is first used: most nodes have one
                answer = await channel.send(self._settings, self._clock, rule.channel, message)
        except TimeoutError:
            raise Undelivered(f"no answer within {self._settings.send_s:g} s") from None
        except (Undelivered, InvalidInput) as error:
            raise Undelivered(_line(str(error))) from error
        except Exception as error:  # however it failed, it has not delivered
            raise Undelivered(_line(f"{type(error).__name__}: {error}")) from error
        return _line(answer)


def _line(text: str) -> str:
    """One line of bounded length, fit for a column and a terminal."""
    return " ".join(text.split())[:ANSWER_MAX]
