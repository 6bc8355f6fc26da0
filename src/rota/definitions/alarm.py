"""What people say about an alarm rule: where, what, to whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rota.definitions import fields, runners
from rota.definitions.asked import job_name
from rota.definitions.text import is_plain
from rota.definitions.words import listed, shown, suggestion
from rota.errors import InvalidInput
from rota.model.alarm import CLUSTER, AlarmKind, ChannelKind

SECONDS_MAX = 86_400
SECRET_MIN, SECRET_MAX = 16, 200
MAIL_MAX = 254
SCOPES = {CLUSTER: 0, "tenant": 1, "project": 2, "job": 3}
KINDS = tuple(str(kind) for kind in AlarmKind if kind is not AlarmKind.TEST)

_seconds = fields.number(0, SECONDS_MAX, "number of seconds")


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a rule, all of them right."""
    return fields.checked(given, _READERS)


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
    for word in value:
        if word not in KINDS:
            raise ValueError(f"must be one of {listed(KINDS)}, not {shown(word)}{suggestion(word, KINDS)}")
    return tuple(AlarmKind(word) for word in fields.once([str(word) for word in value]))


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
