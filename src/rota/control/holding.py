"""Hold: pause the firing of everything, of a tenant or of a project, and resume it."""

from __future__ import annotations

from collections.abc import Sequence

from rota.errors import InvalidInput, NotFound
from rota.model.cluster import Hold
from rota.model.job import Job, JobName
from rota.model.plan import JobFilter
from rota.ports import Store
from rota.transactions.hold import hold, unhold

SUGGEST_MAX = 1000
"""How many jobs are looked at for the name that was meant."""
QUOTA = "quota:"


class HoldControl:
    """What may be asked about firing as a whole."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def hold(self, tenant: str = "", project: str = "") -> tuple[Hold, ...]:
        """Let nothing of a project of a tenant, of a tenant, or of all fire, until told otherwise. Runs that were fired
        go on, and may be started by hand. Says all that is held then. Raises NotFound for what has neither jobs nor a
        quota: a pause of a misspelt name would hold nothing."""
        _check(tenant, project)
        await self._refuse_unknown(tenant, project)
        await hold(self._store, tenant, project)
        return await self.all()

    async def _refuse_unknown(self, tenant: str, project: str) -> None:
        if not tenant or await self._has_jobs(tenant, project or None):
            return
        from rota.definitions.display import suggestion

        tenants = await self._tenants()
        if tenant not in tenants and not await self._has_jobs(tenant, None):
            raise NotFound(f"there is no tenant {tenant}{suggestion(tenant, tenants)}; see: rota tenant list")
        if project:
            known = {it.definition.project for it in await self._jobs_of(tenant)}
            raise NotFound(f"tenant {tenant} has no project {project}{suggestion(project, known)}; see: rota job list")

    async def _has_jobs(self, tenant: str, project: str | None) -> bool:
        return bool(await self._store.jobs(JobFilter(tenant=tenant, project=project, limit=1)))

    async def _jobs_of(self, tenant: str | None) -> Sequence[Job]:
        return await self._store.jobs(JobFilter(tenant=tenant, limit=SUGGEST_MAX))

    async def _tenants(self) -> set[str]:
        """Return tenants with a quota and tenants of some jobs, to suggest the name that was meant."""
        limits = await self._store.limits()
        quotas = {it.name.removeprefix(QUOTA).partition("/")[0] for it in limits if it.name.startswith(QUOTA)}
        return quotas | {it.definition.tenant for it in await self._jobs_of(None)}

    async def unhold(self, tenant: str = "", project: str = "") -> bool:
        """Let it fire again, and what fell due meanwhile by the misfire policies of its jobs. Says whether it was
        held; a wider or narrower scope stays as it is."""
        _check(tenant, project)
        return await self._store.transact(unhold, tenant, project)

    async def all(self) -> tuple[Hold, ...]:
        """Return all holds, the widest first."""
        return await self._store.holds()

    async def on(self, name: JobName) -> tuple[Hold, ...]:
        """Return the holds that keep a job from firing."""
        return tuple(it for it in await self.all() if it.covers(name))


def _check(tenant: str, project: str) -> None:
    from rota.definitions.limit import check_names

    if project and not tenant:
        raise InvalidInput.of("project", "a project belongs to a tenant; name it TENANT/PROJECT")
    check_names({field: name for field, name in (("tenant", tenant), ("project", project)) if name})
