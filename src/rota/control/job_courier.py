"""Tell a job: a message starts a run of it, with all that there is to know as the parameter `alarm`."""

from __future__ import annotations

from rota.control.jobs import Jobs
from rota.errors import RotaError, StoreUnavailable, Undelivered
from rota.model.alarm import AlarmRule, ChannelKind, Message
from rota.model.job import JobName
from rota.ports import Courier


class JobCourier:
    """The channel that needs the store (`ports.Courier`); all others are left to another courier."""

    def __init__(self, jobs: Jobs, others: Courier) -> None:
        self._jobs = jobs
        self._others = others

    async def send(self, rule: AlarmRule, message: Message) -> str:
        if rule.channel.kind is not ChannelKind.JOB:
            return await self._others.send(rule, message)
        name = JobName(*rule.channel.to[0].split("/"))
        try:
            run = await self._jobs.trigger(name, {"alarm": message.shape}, key=f"alarm-{message.id}")
        except StoreUnavailable as error:
            raise Undelivered(f"the store is out of reach: {error}") from error
        except RotaError as error:
            raise Undelivered(str(error)) from error
        return f"run {run.id}"
