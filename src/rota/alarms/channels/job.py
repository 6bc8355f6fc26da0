"""Job: a message starts a run of a job. Only whoever has the store can do that (`control/jobs.py`)."""

from __future__ import annotations

from rota.alarms.channels.channel import AlarmChannel, CourierSettings
from rota.definitions.report import shown
from rota.definitions.requests import job_name
from rota.errors import InvalidInput, Undelivered
from rota.model.alarm import Channel, Message
from rota.ports import Clock


class JobChannel(AlarmChannel):
    """`job: project/name`; stored is `tenant/project/name`."""

    name = "job"

    def to(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, str):
            raise ValueError(f"must be the name of a job, not {shown(value)}")
        try:
            return ("/".join(job_name(value)),)
        except InvalidInput as error:
            raise ValueError(error.problems[0].reason) from None

    async def send(self, settings: CourierSettings, clock: Clock, channel: Channel, message: Message) -> str:
        raise Undelivered("only a node, or whoever has its store, can start a job")
