"""Which lines of history are alarms. All stores share this: the transaction that writes such a line raises the alarm
too, so that a crash loses neither, and nobody has to look through the history."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rota.model.alarm import Alarm, AlarmKind
from rota.model.run import Event
from rota.model.states import SkipReason
from rota.model.value import Json

_ALARMS = {
    "run.failed": AlarmKind.RUN_FAILED,
    "run.skipped": AlarmKind.MISSED_SLOT,
    "job.paused_by_failures": AlarmKind.JOB_PAUSED,
}


def alarms_of(events: Iterable[Event]) -> list[Alarm]:
    """The alarms among lines of history."""
    found = (alarm_of(it.kind, it.data, it.at, it.job_id, it.run_id) for it in events if it.kind in _ALARMS)
    return [alarm for alarm in found if alarm is not None]


def alarm_of(kind: str, data: dict[str, Json], at: datetime, job_id: int | None, run_id: int | None) -> Alarm | None:
    """The alarm that a line of history is, if it is one. Who is concerned is looked up later, where nobody waits."""
    what = _ALARMS.get(kind)
    if what is None or (what is AlarmKind.MISSED_SLOT and data.get("reason") != SkipReason.MISFIRE):
        return None
    subject = f"{job_id}.{data.get('revision')}" if run_id is None else str(run_id)
    return Alarm(key=f"{what}:{subject}", kind=what, at=at, job_id=job_id, run_id=run_id, data=data)
