"""Limits: how much may execute at a time, and how fast it may start: in all, by the quotas of tenants, by resource."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from rota.control.survey import Family
from rota.control.values import Shape, fields_of
from rota.core.advance import Advance
from rota.errors import InvalidInput, NotFound, Refused
from rota.model.plan import JobFilter
from rota.model.work import CAPACITY, GLOBAL, Limit, Rate, quota_limit
from rota.transactions.cancel import cancel
from rota.transactions.limits import set_limits

CANCEL_MAX = 500


class Keep(Enum):
    """Marks an argument whose stored value does not change."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP

AnyRate = Rate | tuple[int, float] | str | None
"""A rate, also as a pair or a text (`10/60`: ten starts in a minute); none: no limit."""


class QuotaState(NamedTuple):
    """A quota of a tenant: what was set, and what counts against it now. No limit: items name it, nobody set it."""

    tenant: str
    quota: str
    limit: Limit | None
    ready: int = 0
    running: int = 0


class Removed(NamedTuple):
    """What was removed with a tenant: its quotas, and how many items were cancelled at once or asked to stop."""

    quotas: tuple[str, ...]
    ended: int = 0
    asked: int = 0


class LimitControl(Family):
    async def set_capacity(self, cap: int) -> Limit:
        """Set how many items may execute at a time in the whole cluster. If more run, nothing starts until fewer do."""
        return await self._set(GLOBAL, {"cap": cap})

    async def set_quota(
        self,
        tenant: str,
        quota: str = "default",
        *,
        cap: int | Keep | None = KEEP,
        weight: int | Keep = KEEP,
        rate: AnyRate | Keep = KEEP,
    ) -> Limit:
        """Make or change a quota of a tenant. What is not given stays as it is; a new quota has no cap and weight 1."""
        _check_names(tenant=tenant, quota=quota)
        return await self._set(quota_limit(tenant, quota), {"cap": cap, "weight": weight, "rate": rate})

    async def set(self, name: str, *, cap: int | Keep | None = KEEP, rate: AnyRate | Keep = KEEP) -> Limit:
        """Set a limit by its name: `global`, or `resource:NAME` for all items that name this resource."""
        _refuse_other(name)
        if name == GLOBAL and cap is None:
            raise InvalidInput.of("cap", "the global limit must have one; remove the limit to go back to the default")
        return await self._set(name, {"cap": cap, "rate": rate})

    async def remove(self, name: str) -> None:
        """Forget a limit; the global one goes back to its default."""
        _refuse_other(name)
        if name not in {limit.name for limit in await self._store.limits()}:
            raise NotFound(f"there is no limit {name}; see: rota limit list")
        if name == GLOBAL:
            await self._store.transact(set_limits, [Limit(name=GLOBAL, cap=CAPACITY)])
        else:
            await self._store.transact(set_limits, (), removed=(name,))

    async def all(self) -> tuple[Limit, ...]:
        """The global limit, also when nobody set it, and those of resources."""
        found = {limit.name: limit for limit in await self._store.limits()}
        capacity = found.pop(GLOBAL, Limit(name=GLOBAL, cap=CAPACITY))
        return (capacity, *(limit for name, limit in sorted(found.items()) if name.startswith("resource:")))

    async def quotas(self) -> list[QuotaState]:
        """Every quota that was set or that items count against, by tenant, with what is ready and what runs."""
        limits = {limit.name: limit for limit in await self._store.limits()}
        counts = {quota_limit(it.tenant, it.quota): it for it in await self._store.statistics()}
        found = []
        for name in sorted({name for name in limits if name.startswith("quota:")} | set(counts)):
            tenant, _, quota = name.removeprefix("quota:").partition("/")
            count = counts.get(name)
            ready, running = (0, 0) if count is None else (count.ready, count.running)
            found.append(QuotaState(tenant, quota, limits.get(name), ready, running))
        return found

    async def remove_tenant(self, tenant: str, *, cancel: bool = False) -> Removed:
        """Forget the quotas of a tenant. With unfinished items it is refused, unless they shall be cancelled.

        What is assigned while this goes on is seen by a second look, when nothing more can be assigned.
        """
        _check_names(tenant=tenant)
        limits = [it for it in await self._store.limits() if it.name.startswith(f"quota:{tenant}/")]
        if not limits:
            raise NotFound(f"there is no tenant {tenant}; see: rota tenant list")
        names = tuple(limit.name for limit in limits)
        if not cancel:
            await self._remove_unused(limits, lambda: self._refuse_unfinished(tenant))
            return Removed(_quotas(names))
        closed = [msgspec.structs.replace(limit, cap=0) for limit in limits]
        await self._store.transact(set_limits, closed)
        first = await self._cancel_all(tenant)
        await self._store.transact(set_limits, (), removed=names)
        second = await self._cancel_all(tenant)
        return Removed(_quotas(names), first[0] + second[0], first[1] + second[1])

    async def remove_quota(self, tenant: str, quota: str) -> Limit:
        """Forget one quota of a tenant. Refused while unfinished items count against it or a job names it: they would
        go on without a cap. What comes while this goes on is seen by a second look."""
        _check_names(tenant=tenant, quota=quota)
        quotas = {it.quota: it.limit for it in await self.quotas() if it.tenant == tenant and it.limit is not None}
        if (limit := quotas.get(quota)) is None:
            from rota.definitions.report import suggestion

            near = suggestion(quota, quotas)
            raise NotFound(f"tenant {tenant} has no quota {quota}{near}; see: rota tenant list")
        await self._remove_unused([limit], lambda: self._refuse_used(tenant, quota))
        return limit

    async def _remove_unused(self, limits: Sequence[Limit], refuse_used: Callable[[], Awaitable[None]]) -> None:
        """Forget limits, unless they are used; those that were used meanwhile are set again."""
        await refuse_used()
        await self._store.transact(set_limits, (), removed=tuple(limit.name for limit in limits))
        try:
            await refuse_used()
        except Refused:
            await self._store.transact(set_limits, limits)
            raise

    async def _refuse_used(self, tenant: str, quota: str) -> None:
        for it in await self._store.statistics():
            if (it.tenant, it.quota) == (tenant, quota) and (items := it.ready + it.running):
                raise Refused(f"quota {quota} of tenant {tenant} has {items} unfinished items; wait for them")
        after = 0
        while jobs := await self._store.jobs(JobFilter(tenant=tenant, after_id=after)):
            for job in jobs:
                if any(task.quota == quota for task in job.definition.tasks):
                    name = job.definition.full_name
                    raise Refused(f"job {name} names quota {quota} of tenant {tenant}; change or delete it first")
            after = jobs[-1].id

    async def _refuse_unfinished(self, tenant: str) -> None:
        counts = [it for it in await self._store.statistics() if it.tenant == tenant]
        items = sum(it.ready + it.running for it in counts)
        runs = await self._store.live_runs(tenant, limit=CANCEL_MAX)
        if items or runs:
            more = " or more" if len(runs) == CANCEL_MAX else ""
            raise Refused(
                f"tenant {tenant} has {items} unfinished items in {len(runs)}{more} runs; wait for them, or "
                f"cancel them all: rota tenant remove {tenant} --cancel"
            )

    async def _cancel_all(self, tenant: str) -> tuple[int, int]:
        """Cancel every run of a tenant once; one that goes on until its processes have stopped is not asked twice."""
        ended = asked = after = 0
        while run_ids := await self._store.live_runs(tenant, after_id=after, limit=CANCEL_MAX):
            done = await self._store.transact(cancel, run_ids, rule=Advance())
            ended, asked, after = ended + done.ended, asked + done.asked, run_ids[-1]
        return ended, asked

    async def _set(self, name: str, given: dict[str, Any]) -> Limit:
        from rota.definitions.assignment import checked

        wanted = checked({key: value for key, value in given.items() if value is not KEEP})
        known = {limit.name: limit for limit in await self._store.limits()}
        default = Limit(name=name, cap=CAPACITY) if name == GLOBAL else Limit(name=name)
        limit = msgspec.structs.replace(known.get(name, default), **wanted)
        await self._store.transact(set_limits, [limit])
        return limit


def _quotas(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.partition("/")[2] for name in names)


def _refuse_other(name: str) -> None:
    """Raise InvalidInput unless it is the global limit, or that of a resource."""
    kind, colon, resource = name.partition(":")
    if name == GLOBAL:
        return
    if kind == "quota":
        raise InvalidInput.of("name", "quotas belong to tenants; see: rota tenant set --help")
    if kind != "resource" or not colon:
        raise InvalidInput.of("name", f"must be global or resource:NAME, not {name!r}")
    _check_names(resource=resource)


def _check_names(**given: str) -> None:
    from rota.definitions.assignment import check_names

    check_names(given)


def limit_shape(limit: Limit) -> Shape:
    rate = None if limit.rate is None else fields_of(limit.rate, "max", "period_s")
    return {**fields_of(limit, "name", "cap", "weight"), "rate": rate}


def quota_shape(it: QuotaState) -> Shape:
    limit = limit_shape(it.limit) if it.limit is not None else {"cap": None, "weight": 1, "rate": None}
    limit.pop("name", None)
    named = {"tenant": it.tenant, "quota": it.quota, "is_set": it.limit is not None}
    return {**named, **limit, "ready": it.ready, "running": it.running}


def removed_shape(tenant: str, removed: Removed) -> Shape:
    return {
        "tenant": tenant,
        "quotas": list(removed.quotas),
        "items_cancelled": removed.ended,
        "items_asked_to_stop": removed.asked,
    }
