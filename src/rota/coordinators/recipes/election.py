"""An election: at most one client of the cluster leads at a time, as far as the coordinator knows (S4.3, S4.11).

Whoever leads may be deposed without noticing, for as long as a session; so what a leader writes carries an epoch, and
is written over the version that it has read.
"""

from __future__ import annotations

from rota.model.entry import Entry
from rota.model.folders import ELECTION
from rota.ports import Coordinator

LEADER = f"{ELECTION}/leader"


class Election:
    """One candidate."""

    def __init__(self, coordinator: Coordinator, address: str) -> None:
        self._coordinator = coordinator
        self._address = address
        self.fence: int | None = None
        """The number of this term; none while another leads."""

    async def campaign(self) -> bool:
        """Lead if nobody does; says whether this candidate leads."""
        self.fence = None
        self.fence = (await self._coordinator.claim({LEADER: self._address})).get(LEADER)
        return self.fence is not None

    async def leader(self) -> Entry | None:
        return await self._coordinator.get(LEADER)

    async def resign(self) -> None:
        """Let another lead."""
        if self.fence is not None:
            await self._coordinator.release({LEADER: self.fence})
            self.fence = None
