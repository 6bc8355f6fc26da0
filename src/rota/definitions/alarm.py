"""What people say about an alarm rule: where, what, to whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rota.definitions import fields, runners
from rota.definitions.asked import job_name
from rota.definitions.text import is_plain
from rota.definitions.words import listed, shown, suggestion
from rota.errors import InvalidInput
from rota.model.alarm import CLUSTER, AlarmKind, Channel, ChannelKind, JobAlarm

SECONDS_MAX = 86_400
SECRET_MIN, SECRET_MAX = 16, 200
MAIL_MAX = 254
SCOPES = {CLUSTER: 0, "tenant": 1, "project": 2, "job": 3}
KINDS = tuple(str(kind) for kind in AlarmKind if kind not in (AlarmKind.TEST, AlarmKind.JOB_FAILING))
FAMILIES: dict[str, tuple[str, ...]] = {
    "failure": ("run_failed", "exhausted", "job_paused"),
    "lateness": ("missed_slot", "late_start", "long_run", "unowned_job"),
    "recovery": ("recovered",),
}
"""Words for several kinds at once."""
ALARMS_MAX = 20
OF_JOBS = (*(str(kind) for kind in ChannelKind), "kinds", "merge_s", "late_s", "secret")
"""What may be said about who is told of a job."""

_seconds = fields.number(0, SECONDS_MAX, "number of seconds")


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a rule, all of them right."""
    return fields.checked(given, _READERS)


def job_alarms(value: object) -> tuple[JobAlarm, ...]:
    """Who is told of a job: a list of channels, each with what it is told of."""
    if not isinstance(value, list | tuple) or len(value) > ALARMS_MAX:
        raise ValueError(
            f"must be a list of at most {ALARMS_MAX}, like [{{mail: ops@example.com}}], not {shown(value)}"
        )
    found = [_job_alarm(place, each) for place, each in enumerate(value)]
    ways = [(it.channel.kind, it.channel.to) for it in found]
    for place, way in enumerate(ways):
        if way in ways[:place]:
            raise ValueError(f"entry {place} has the same {way[0]} as one before it; name all its kinds in one")
    return tuple(found)


def written(alarm: JobAlarm) -> dict[str, Any]:
    """What a person would have written."""
    to = alarm.channel.to
    several = alarm.channel.kind is ChannelKind.COMMAND
    found = {str(alarm.channel.kind): list(to) if several else "".join(to), "kinds": [str(it) for it in alarm.kinds]}
    secret = {"secret": alarm.channel.secret} if alarm.channel.secret else {}
    return {**found, **secret, "merge_s": alarm.merge_s, "late_s": alarm.late_s}


def _job_alarm(place: int, value: object) -> JobAlarm:
    if not isinstance(value, Mapping):
        raise ValueError(f"entry {place} must be a mapping like {{mail: ops@example.com}}, not {shown(value)}")
    for key in value:
        if key not in OF_JOBS:
            hint = suggestion(key, OF_JOBS) or f"; known are {listed(OF_JOBS)}"
            raise ValueError(f"entry {place}: {shown(key)} is not a known key{hint}")
    ways = [key for key in value if key in tuple(ChannelKind)]
    if len(ways) != 1:
        raise ValueError(f"entry {place} must name one channel: {listed([str(it) for it in ChannelKind])}")
    if "secret" in value and ways[0] != ChannelKind.WEBHOOK:
        raise ValueError(f"entry {place}: secret goes only with webhook")
    try:
        found = fields.checked(value, _READERS)
    except InvalidInput as error:
        raise ValueError(f"entry {place}: {error.problems[0]}") from None
    channel = Channel(kind=ChannelKind(ways[0]), to=found.pop(ways[0]), secret=found.pop("secret", ""))
    return JobAlarm(channel=channel, **found)


def _scope(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {shown(value)}")
    kind, *names = value.split("/")
    if SCOPES.get(kind) != len(names):
        raise ValueError(f"must be cluster, tenant/T, project/T/P or job/T/P/J, not {shown(value)}")
    for name in names:
        fields.name(name)
    return value


def _kinds(value: object) -> tuple[AlarmKind, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of kinds, not {shown(value)}")
    known = (*FAMILIES, *KINDS)
    for word in value:
        if word not in known:
            raise ValueError(f"must be one of {listed(known)}, not {shown(word)}{suggestion(word, known)}")
    words = [kind for word in fields.once([str(word) for word in value]) for kind in FAMILIES.get(word, (word,))]
    return tuple(AlarmKind(word) for word in dict.fromkeys(words))


def _mail(value: object) -> tuple[str, ...]:
    if not isinstance(value, str) or len(value) > MAIL_MAX or not is_plain(value):
        raise ValueError(f"must be one mail address, not {shown(value)}")
    name, at, host = value.rpartition("@")
    if not at or not name or not host or set(' \t,;<>()[]"\\:') & set(value) or "@" in name:
        raise ValueError(f"must be one mail address like ops@example.com, not {shown(value)}")
    return (value,)


def _job(value: object) -> tuple[str, ...]:
    if not isinstance(value, str):
        raise ValueError(f"must be the name of a job, not {shown(value)}")
    try:
        return ("/".join(job_name(value)),)
    except InvalidInput as error:
        raise ValueError(error.problems[0].reason) from None


def _secret(value: object) -> str:
    if not isinstance(value, str) or not SECRET_MIN <= len(value) <= SECRET_MAX or not is_plain(value):
        raise ValueError(f"must be {SECRET_MIN} to {SECRET_MAX} printable characters")
    return value


_READERS: dict[str, Callable[[object], Any]] = {
    "name": fields.name,
    "scope": _scope,
    "kinds": _kinds,
    "merge_s": _seconds,
    "late_s": _seconds,
    "secret": _secret,
    str(ChannelKind.MAIL): _mail,
    str(ChannelKind.WEBHOOK): lambda value: (runners.url(value),),
    str(ChannelKind.COMMAND): lambda value: tuple(runners.argv(value)),
    str(ChannelKind.JOB): _job,
}
