"""Alarms: set, list, test and remove the rules that say who is told of what; list what was told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from rota.alarms.rules import message
from rota.control.survey import Family
from rota.control.values import Shape, fields_of
from rota.errors import InvalidInput, NotFound, Refused
from rota.model.alarm import CLUSTER, LATE_S, MERGE_S, Alarm, AlarmKind, AlarmRule, Channel, ChannelKind, Delivery
from rota.model.job import Definition, JobName, job_scope
from rota.model.value import digest
from rota.ports import Courier
from rota.transactions.alarms import remove_alarm_rule, set_alarm_rule

LATEST_MAX = 1000


class RuleState(NamedTuple):
    """A rule, the number of its deliveries under way, and its last delivery that ended, whether it arrived or not."""

    rule: AlarmRule
    pending: int = 0
    last: Delivery | None = None


class AlarmControl(Family):
    async def set(
        self,
        channel: str,
        to: str | Sequence[str],
        *,
        name: str | None = None,
        scope: str = CLUSTER,
        kinds: Sequence[str] = (),
        merge_s: float = MERGE_S,
        late_s: float = LATE_S,
        secret: str | None = None,
    ) -> AlarmRule:
        """Make a rule, or change the one of that name. Without a name, scope and channel make one: who sets the same
        again changes it. A webhook without a secret gets one, or keeps the one it has."""
        from rota.definitions.alarm import channel_names, checked

        if channel not in (names := channel_names([channel])):
            raise InvalidInput.of("channel", f"must be {', '.join(names[:-1])} or {names[-1]}, not {channel!r}")
        given: dict[str, Any] = {"scope": scope, "kinds": list(kinds), "merge_s": merge_s, "late_s": late_s}
        given |= (
            {channel: to} | ({} if name is None else {"name": name}) | ({} if secret is None else {"secret": secret})
        )
        found = checked(given)
        way = Channel(kind=channel, to=found.pop(channel), secret=found.pop("secret", ""))
        if way.kind == ChannelKind.JOB:
            who = JobName(*way.to[0].split("/"))
            if not await self._store.named([who]):
                raise NotFound(f"there is no job {who}")
        if name is not None:
            await self._refuse_defined(name)
        rule = await self._signed(AlarmRule(channel=way, **{"name": _own_name(scope, way), **found}))
        return await self._store.transact(set_alarm_rule, rule)

    async def states(self) -> list[RuleState]:
        rules = await self._store.alarm_rules()
        latest = (await self._store.deliveries(pending=False, limit=LATEST_MAX)).deliveries
        return [_state(rule, [it for it in latest if it.rule == rule.name]) for rule in rules]

    async def told(self, *, limit: int = 100) -> tuple[tuple[Alarm, ...], dict[int, list[Delivery]]]:
        """The newest alarms, but for levels whose beginning nobody is told, and their deliveries by the alarm's id."""
        found = await self._store.alarms(limit=2 * limit)
        alarms = tuple(it for it in found if it.kind is not AlarmKind.JOB_FAILING)[:limit]
        latest = (await self._store.deliveries(pending=False, limit=LATEST_MAX)).deliveries
        by_alarm: dict[int, list[Delivery]] = {}
        for it in latest:
            by_alarm.setdefault(it.alarm.id, []).append(it)
        return alarms, by_alarm

    async def remove(self, name: str) -> None:
        """Remove a rule. Raises Refused for a rule of a job's definition: it is removed in the definition."""
        await self._rule(name)
        await self._refuse_defined(name)
        await self._store.transact(remove_alarm_rule, name)

    async def test(self, name: str, courier: Courier) -> str:
        """Send a test through the channel of a rule, from this host, and return the answer. Raises `Undelivered`."""
        rule = await self._rule(name)
        now = await self._store.now()
        text = f"this is a test of the rule {name}"
        alarm = Alarm(key=f"test:{self._clock.token()}", kind=AlarmKind.TEST, at=now, scope=rule.scope, text=text)
        return await courier.send(rule, message(name, [alarm]))

    async def align(self, definitions: Sequence[Definition], gone: Sequence[JobName] = ()) -> None:
        """Set and remove rules so that each job has those of its definition."""
        wanted = {rule.name: rule for it in definitions for rule in it.alarm_rules}
        scopes = {job_scope(name) for name in (*(it.full_name for it in definitions), *gone)}
        known = {it.name: it for it in await self._store.alarm_rules() if it.defined and it.scope in scopes}
        for rule in wanted.values():
            if rule.name not in known or not _same_rule(rule, known[rule.name]):
                signed = await self._signed(rule)
                await self._store.transact(set_alarm_rule, signed)
        for name in known.keys() - wanted.keys():
            await self._store.transact(remove_alarm_rule, name)

    async def _refuse_defined(self, name: str) -> None:
        rule = (await self._by_name()).get(name)
        if rule is not None and rule.defined:
            job = rule.scope.removeprefix("job/")
            raise Refused(f"the rule {name} belongs to the definition of the job {job}; change its alarms there")

    async def _rule(self, name: str) -> AlarmRule:
        if (rule := (await self._by_name()).get(name)) is None:
            raise NotFound(f"there is no alarm rule {name}; see: rota alarm list")
        return rule

    async def _by_name(self) -> dict[str, AlarmRule]:
        return {rule.name: rule for rule in await self._store.alarm_rules()}

    async def _signed(self, rule: AlarmRule) -> AlarmRule:
        """A channel that signs, as webhooks do, always has a secret."""
        from rota.definitions.alarm import is_signed

        if rule.channel.secret or not is_signed(rule.channel.kind):
            return rule
        known = (await self._by_name()).get(rule.name, rule)
        secret = known.channel.secret or self._clock.token()
        return msgspec.structs.replace(rule, channel=msgspec.structs.replace(rule.channel, secret=secret))


def _same_rule(wanted: AlarmRule, known: AlarmRule) -> bool:
    """True if both rules are the same. A rule without a secret equals one whose secret was generated."""
    secret = wanted.channel.secret or known.channel.secret
    channel = msgspec.structs.replace(wanted.channel, secret=secret)
    return msgspec.structs.replace(wanted, channel=channel, since_at=known.since_at) == known


def _own_name(scope: str, channel: Channel) -> str:
    bare = AlarmRule(name="", scope=scope, channel=msgspec.structs.replace(channel, secret=""))
    return f"{channel.kind}-{digest(bare)[:8]}"


def _state(rule: AlarmRule, theirs: Sequence[Delivery]) -> RuleState:
    tried = [it for it in theirs if it.answer]
    return RuleState(rule, sum(it.ended_at is None for it in theirs), tried[0] if tried else None)


def rule_shape(it: RuleState) -> Shape:
    rule, last = it.rule, it.last
    return {
        **fields_of(rule, "name", "scope", "kinds"),
        "channel": str(rule.channel.kind),
        "to": list(rule.channel.to),
        **fields_of(rule, "merge_s", "late_s", "since_at"),
        "pending": it.pending,
        "last": None if last is None else delivery_shape(last),
    }


def delivery_shape(it: Delivery) -> Shape:
    return fields_of(it, "rule", "tries", "arrived", "answer", "ended_at")


def alarm_shape(it: Alarm, told: Iterable[Delivery]) -> Shape:
    return {
        **fields_of(it, "key", "kind", "at", "scope", "text"),
        "open": it.is_open,
        "run": it.run_id,
        "told": [delivery_shape(one) for one in told],
    }
