"""Alarms that start a job: each message starts a run, with the message as the parameter `alarm`."""

from __future__ import annotations

from rota.control.jobs import JobControl
from rota.errors import RotaError, StoreUnavailable, Undelivered
from rota.model.alarm import AlarmRule, ChannelKind, Message
from rota.model.job import JobName
from rota.ports import Courier


class JobCourier:
    """Sends messages of channel `job` (`ports.Courier`), and hands all others to another courier."""

    def __init__(self, jobs: JobControl, others: Courier) -> None:
        self._jobs = jobs
        self._others = others

    async def send(self, rule: AlarmRule, message: Message) -> str:
        if rule.channel.kind != ChannelKind.JOB:
            return await self._others.send(rule, message)
        name = JobName(*rule.channel.to[0].split("/"))
        try:
            run = await self._jobs.trigger(name, {"alarm": message.shape}, key=f"alarm-{message.id}")
        except StoreUnavailable as error:
            raise Undelivered(f"the store is out of reach: {error}") from error
        except RotaError as error:
            raise Undelivered(str(error)) from error
        return f"run {run.id}"
