"""Hold: fire nothing of a scope until told otherwise."""

from __future__ import annotations

from rota.backends.memory.placing import Placing
from rota.model.cluster import Hold


class Holding(Placing):
    """Scopes of which nothing fires."""

    async def hold(self, tenant: str = "", project: str = "") -> None:
        if (tenant, project) not in self._holds:
            now = self._clock.wall()
            self._holds[tenant, project] = Hold(tenant=tenant, project=project, held_at=now, actor=self._actor)
            self._record("cluster.paused", {"tenant": tenant, "project": project})

    async def unhold(self, tenant: str = "", project: str = "") -> bool:
        gone = self._holds.pop((tenant, project), None) is not None
        if gone:
            self._record("cluster.resumed", {"tenant": tenant, "project": project})
        return gone

    async def holds(self) -> tuple[Hold, ...]:
        return tuple(self._holds[scope] for scope in sorted(self._holds))
