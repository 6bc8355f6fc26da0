"""Hold: let nothing of a scope fire, and let it fire again."""

from __future__ import annotations

from rota.control.asking import Asking
from rota.errors import InvalidInput, Problem
from rota.model.cluster import Hold
from rota.model.job import JobName


class Holding(Asking):
    """What may be asked about firing as a whole."""

    async def hold(self, tenant: str = "", project: str = "") -> tuple[Hold, ...]:
        """Let nothing of a project of a tenant, of a tenant, or of all fire, until told otherwise. Runs that were fired
        go on, and may be started by hand. Says all that is held then."""
        _check(tenant, project)
        await self._again(lambda: self._store.hold(tenant, project))
        return await self.holds()

    async def unhold(self, tenant: str = "", project: str = "") -> bool:
        """Let it fire again, and what fell due meanwhile by the misfire policies of its jobs. Says whether it was
        held; a wider or narrower scope stays as it is."""
        _check(tenant, project)
        return await self._again(lambda: self._store.unhold(tenant, project))

    async def holds(self) -> tuple[Hold, ...]:
        """All that is held, widest first."""
        return await self._again(self._store.holds)

    async def holds_on(self, name: JobName) -> tuple[Hold, ...]:
        """What keeps a job from firing."""
        return tuple(it for it in await self.holds() if it.covers(name))


def _check(tenant: str, project: str) -> None:
    from rota.definitions import fields

    if project and not tenant:
        raise InvalidInput.of("project", "a project belongs to a tenant; name it TENANT/PROJECT")
    problems = []
    for field, value in (("tenant", tenant), ("project", project)):
        try:
            _ = value and fields.name(value)
        except ValueError as error:
            problems.append(Problem(field, str(error)))
    if problems:
        raise InvalidInput(problems)
