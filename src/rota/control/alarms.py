"""Alarms: who wants to know what, whether it would reach them, and what was told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from rota.control.asking import Asking
from rota.core.alarm import message
from rota.errors import InvalidInput, NotFound
from rota.model.alarm import CLUSTER, LATE_S, MERGE_S, Alarm, AlarmKind, AlarmRule, Channel, ChannelKind, Delivery
from rota.model.job import JobName
from rota.model.value import digest
from rota.ports import Courier

LATEST_MAX = 1000


class RuleState(NamedTuple):
    """A rule, how many alarms are on their way by it, and the last of them that came to an end, well or not."""

    rule: AlarmRule
    pending: int = 0
    last: Delivery | None = None


class Alarms(Asking):
    """What may be asked about alarms."""

    async def set_alarm(
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
        from rota.definitions.alarm import checked

        if channel not in tuple(ChannelKind):
            raise InvalidInput.of("channel", f"must be mail, webhook, command or job, not {channel!r}")
        given: dict[str, Any] = {"scope": scope, "kinds": list(kinds), "merge_s": merge_s, "late_s": late_s}
        given |= (
            {channel: to} | ({} if name is None else {"name": name}) | ({} if secret is None else {"secret": secret})
        )
        found = checked(given)
        way = Channel(kind=ChannelKind(channel), to=found.pop(channel), secret=found.pop("secret", ""))
        if way.kind is ChannelKind.JOB:
            who = JobName(*way.to[0].split("/"))
            if not await self._again(lambda: self._store.named([who])):
                raise NotFound(f"there is no job {who}")
        rule = await self._signed(AlarmRule(channel=way, **{"name": _own_name(scope, way), **found}))
        return await self._again(lambda: self._store.set_alarm_rule(rule))

    async def alarm_states(self) -> list[RuleState]:
        """Every rule, with what became of what it asked for."""
        rules = await self._again(self._store.alarm_rules)
        latest = (await self._again(lambda: self._store.deliveries(pending=False, limit=LATEST_MAX))).deliveries
        return [_state(rule, [it for it in latest if it.rule == rule.name]) for rule in rules]

    async def told_alarms(self, *, limit: int = 100) -> tuple[tuple[Alarm, ...], dict[int, list[Delivery]]]:
        """The newest alarms, and their deliveries by the alarm's id."""
        alarms = await self._again(lambda: self._store.alarms(limit=limit))
        latest = (await self._again(lambda: self._store.deliveries(pending=False, limit=LATEST_MAX))).deliveries
        by_alarm: dict[int, list[Delivery]] = {}
        for it in latest:
            by_alarm.setdefault(it.alarm.id, []).append(it)
        return alarms, by_alarm

    async def remove_alarm(self, name: str) -> None:
        """Forget a rule."""
        await self._rule(name)
        await self._again(lambda: self._store.remove_alarm_rule(name))

    async def test_alarm(self, name: str, courier: Courier) -> str:
        """Send a test by the channel of a rule, from here; says what came back. Raises `Undelivered`."""
        rule = await self._rule(name)
        now = await self._again(self._store.now)
        text = f"this is a test of the rule {name}"
        alarm = Alarm(key=f"test:{self._clock.token()}", kind=AlarmKind.TEST, at=now, scope=rule.scope, text=text)
        return await courier.send(rule, message(name, [alarm]))

    async def _rule(self, name: str) -> AlarmRule:
        rules = {rule.name: rule for rule in await self._again(self._store.alarm_rules)}
        if name not in rules:
            raise NotFound(f"there is no alarm rule {name}; see: rota alarm list")
        return rules[name]

    async def _signed(self, rule: AlarmRule) -> AlarmRule:
        """A webhook always has a secret."""
        if rule.channel.kind is not ChannelKind.WEBHOOK or rule.channel.secret:
            return rule
        known = {it.name: it.channel for it in await self._again(self._store.alarm_rules)}.get(rule.name)
        secret = known.secret if known is not None and known.secret else self._clock.token()
        return msgspec.structs.replace(rule, channel=msgspec.structs.replace(rule.channel, secret=secret))


def _own_name(scope: str, channel: Channel) -> str:
    """The name of a rule that nobody named."""
    bare = AlarmRule(name="", scope=scope, channel=msgspec.structs.replace(channel, secret=""))
    return f"{channel.kind}-{digest(bare)[:8]}"


def _state(rule: AlarmRule, theirs: Sequence[Delivery]) -> RuleState:
    tried = [it for it in theirs if it.answer]
    return RuleState(rule, sum(it.ended_at is None for it in theirs), tried[0] if tried else None)
