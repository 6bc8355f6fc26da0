"""Check alarm rules: the scope, the kinds of alarms, and the channel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from rota.alarms.channels.registry import CHANNELS
from rota.definitions import fields
from rota.definitions.characters import is_plain
from rota.definitions.report import listed, shown, suggestion
from rota.errors import InvalidInput
from rota.model.alarm import CLUSTER, AlarmKind, Channel, JobAlarm

SECONDS_MAX = 86_400
SECRET_MIN, SECRET_MAX = 16, 200
SCOPES = {CLUSTER: 0, "tenant": 1, "project": 2, "job": 3}
KINDS = tuple(str(kind) for kind in AlarmKind if kind not in (AlarmKind.TEST, AlarmKind.JOB_FAILING))
FAMILIES: dict[str, tuple[str, ...]] = {
    "failure": ("run_failed", "exhausted", "job_paused"),
    "lateness": ("missed_slot", "late_start", "long_run", "unowned_job"),
    "recovery": ("recovered",),
}
"""Words for several kinds at once."""
ALARMS_MAX = 20
OF_JOBS = ("kinds", "merge_s", "late_s", "secret")
"""What may be said about who is told of a job, beside the channel."""

_seconds = fields.number(0, SECONDS_MAX, "number of seconds")


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    return fields.checked(given, _readers(channel_names(given)))


def channel_names(given: Iterable[object] = ()) -> tuple[str, ...]:
    """The names of the channels. Plugins are looked for only if one of the given keys is not known without them."""
    known = (*CHANNELS.own_names, *_READERS)
    return CHANNELS.own_names if all(key in known for key in given) else CHANNELS.names


def is_signed(channel: str) -> bool:
    return CHANNELS.find(channel).signed


def job_alarms(value: object) -> tuple[JobAlarm, ...]:
    """Read the alarms of a job: a list of channels, each with the kinds that it is told of."""
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
    to = alarm.channel.to
    channel = CHANNELS.find(alarm.channel.kind)
    found = {channel.name: channel.written(to), "kinds": [str(it) for it in alarm.kinds]}
    secret = {"secret": alarm.channel.secret} if alarm.channel.secret else {}
    return {**found, **secret, "merge_s": alarm.merge_s, "late_s": alarm.late_s}


def _job_alarm(place: int, value: object) -> JobAlarm:
    if not isinstance(value, Mapping):
        raise ValueError(f"entry {place} must be a mapping like {{mail: ops@example.com}}, not {shown(value)}")
    channels = channel_names(value)
    known = (*channels, *OF_JOBS)
    for key in value:
        if key not in known:
            hint = suggestion(key, known) or f"; known are {listed(known)}"
            raise ValueError(f"entry {place}: {shown(key)} is not a known key{hint}")
    ways = [key for key in value if key in channels]
    if len(ways) != 1:
        raise ValueError(f"entry {place} must name one channel: {listed(channels)}")
    try:
        if "secret" in value and not is_signed(ways[0]):
            signed = " and ".join(filter(is_signed, CHANNELS.own_names))
            raise ValueError(f"entry {place}: secret goes only with {signed}")
        found = fields.checked(value, _readers(channels))
    except InvalidInput as error:
        raise ValueError(f"entry {place}: {error.problems[0]}") from None
    channel = Channel(kind=ways[0], to=found.pop(ways[0]), secret=found.pop("secret", ""))
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


def _secret(value: object) -> str:
    if not isinstance(value, str) or not SECRET_MIN <= len(value) <= SECRET_MAX or not is_plain(value):
        raise ValueError(f"must be {SECRET_MIN} to {SECRET_MAX} printable characters")
    return value


def _readers(channels: tuple[str, ...]) -> dict[str, Callable[[object], Any]]:
    return {**_READERS, **{name: partial(_to, name) for name in channels}}


def _to(channel: str, value: object) -> tuple[str, ...]:
    """Whom a channel tells, as the channel reads it."""
    try:
        found = CHANNELS.find(channel)
    except InvalidInput as error:  # it cannot be loaded
        raise ValueError(error.problems[0].reason) from None
    return found.to(value)


_READERS: dict[str, Callable[[object], Any]] = {
    "name": fields.name,
    "scope": _scope,
    "kinds": _kinds,
    "merge_s": _seconds,
    "late_s": _seconds,
    "secret": _secret,
}
