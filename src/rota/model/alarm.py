"""Alarms: what happened that a person should know, who wants to know it, and what is sent.

    happening ──raise, once per key──> Alarm ──rules choose──> Delivery, one per rule ──merged──> Message ──> channel

A *level* is an alarm that lasts for as long as its cause: it is open until it ends, and its end is an alarm itself.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum

import msgspec

from rota.model.value import Json, Value, encode

CLUSTER = "cluster"
MERGE_S = 60.0
LATE_S = 10.0
KEY_MAX = 250


class AlarmKind(StrEnum):
    """What may happen."""

    HELD_ABOVE = "held_above"
    NODE_DISCONNECTED = "node_disconnected"
    UNOWNED_JOB = "unowned_job"
    MISSED_SLOT = "missed_slot"
    STORE_LOST = "store_lost"
    COORDINATOR_LOST = "coordinator_lost"
    RUN_FAILED = "run_failed"
    LATE_START = "late_start"
    LONG_RUN = "long_run"
    EXHAUSTED = "exhausted"
    JOB_PAUSED = "job_paused"
    RECOVERED = "recovered"
    JOB_FAILING = "job_failing"
    """The last run of a job has failed. A level of which only the end is told: RUN_FAILED tells of its beginning."""
    TEST = "test"
    """Sent only by `rota alarm test`; no rule waits for it."""


class Alarm(Value, frozen=True, kw_only=True):
    """Something that happened, known by its key: raised twice, it is there once."""

    id: int = 0
    key: str
    kind: AlarmKind
    at: datetime
    scope: str | None = None
    """Where: `cluster`, `tenant/T` or `job/T/P/J`. None: as its job or run says, which nobody has looked up yet."""
    text: str = ""
    """What happened, in one line for people; looked up together with the scope."""
    is_open: bool = False
    """Whether it is a level that has not ended."""
    job_id: int | None = None
    run_id: int | None = None
    data: dict[str, Json] = {}  # noqa: RUF012 - msgspec copies an empty default for each value

    def recovery(self, at: datetime) -> Alarm:
        """The alarm that tells of the end of this one."""
        data: dict[str, Json] = {**self.data, "level": str(self.kind), "lasted_s": (at - self.at).total_seconds()}
        return msgspec.structs.replace(
            self,
            id=0,
            key=f"recovered:{self.past_key}",
            kind=AlarmKind.RECOVERED,
            at=at,
            text=f"over: {self.text}",
            is_open=False,
            data=data,
        )

    @property
    def past_key(self) -> str:
        """The key of a level that has ended, so that the same may begin again."""
        return f"{self.key}#{self.id}" if self.id else self.key


class ChannelKind(StrEnum):
    """Our own channels; plugins may add others."""

    MAIL = "mail"
    WEBHOOK = "webhook"
    COMMAND = "command"
    JOB = "job"


class Channel(Value, frozen=True, kw_only=True):
    """Where messages go: to a mail address, to a URL, into a program (`to` is then its argument list), into a run of a
    job (`to` is then `tenant/project/name`), or wherever a plugin sends them."""

    kind: str
    """The name of a channel: one of `ChannelKind`, or of a plugin."""
    to: tuple[str, ...]
    secret: str = ""
    """What the messages of a webhook are signed with."""


class AlarmRule(Value, frozen=True, kw_only=True):
    """Who wants to know what. What happens in a narrower scope belongs to a wider one too."""

    name: str
    scope: str = CLUSTER
    kinds: tuple[AlarmKind, ...] = ()
    """None named: all."""
    channel: Channel
    merge_s: float = MERGE_S
    """Alarms of one kind that come within so many seconds are one message."""
    late_s: float = LATE_S
    """A start is late so many seconds after the job's own `start_within_s`."""
    since_at: datetime | None = None
    """Nothing that happened before is told: when the rule was made, by the store's clock."""
    defined: bool = False
    """Whether the definition of a job has it: it is changed and removed there."""


class JobAlarm(Value, frozen=True, kw_only=True):
    """What the definition of a job says about who is told of it: a rule whose scope is the job."""

    kinds: tuple[AlarmKind, ...] = ()
    """None named: all."""
    channel: Channel
    merge_s: float = MERGE_S
    late_s: float = LATE_S

    def rule(self, scope: str) -> AlarmRule:
        """The rule of a job, without the secret of its channel unless one is given. A channel has one rule."""
        bare = msgspec.structs.replace(self.channel, secret="")
        known = hashlib.sha256(encode([scope, bare]).encode()).hexdigest()[:12]
        return AlarmRule(
            name=f"defined-{self.channel.kind}-{known}",
            scope=scope,
            kinds=self.kinds,
            channel=self.channel,
            merge_s=self.merge_s,
            late_s=self.late_s,
            defined=True,
        )


class Delivery(Value, frozen=True, kw_only=True):
    """An alarm on its way to whoever a rule names. `tries` is a fence too: who takes it, raises it."""

    rule: str
    alarm: Alarm
    tries: int = 0
    not_before_at: datetime
    ended_at: datetime | None = None
    answer: str = ""
    """What came back last; with `ended_at`, whether it arrived is told by `arrived`."""
    arrived: bool = False


class Deliveries(Value, frozen=True, kw_only=True):
    """Deliveries, and the store's clock when they were read."""

    now: datetime
    deliveries: tuple[Delivery, ...] = ()


class Settled(Value, frozen=True, kw_only=True):
    """What became of deliveries that were sent together: they arrived, are tried again after a while, or are given
    up."""

    deliveries: tuple[Delivery, ...]
    answer: str
    arrived: bool
    again_s: float | None = None


class Message(Value, frozen=True, kw_only=True):
    """What is sent: one or many alarms of one kind."""

    id: str
    """The same when the same is sent again, so that a receiver can tell."""
    rule: str
    kind: AlarmKind
    count: int
    first: tuple[Alarm, ...]
    """The first few."""
    subject: str
    text: str

    @property
    def shape(self) -> dict[str, Json]:
        """All that there is to know, in one object, as programs get it."""
        return {
            "id": self.id,
            "rule": self.rule,
            "kind": str(self.kind),
            "count": self.count,
            "subject": self.subject,
            "text": self.text,
            "first": [_shape(it) for it in self.first],
        }


def _shape(alarm: Alarm) -> dict[str, Json]:
    return {
        "key": alarm.key,
        "at": alarm.at.isoformat(),
        "scope": alarm.scope,
        "text": alarm.text,
        "run": alarm.run_id,
        "data": alarm.data,
    }


def covers(wide: str, narrow: str) -> bool:
    """Whether a scope holds another: `tenant/a` holds `job/a/p/j`, and `cluster` holds all."""
    outer, inner = _parts(wide), _parts(narrow)
    return inner[: len(outer)] == outer


def _parts(scope: str) -> list[str]:
    return scope.split("/")[1:]
