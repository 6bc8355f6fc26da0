"""Nodes: who there is, and who takes no more work."""

from __future__ import annotations

from collections.abc import Sequence

from rota.control.asking import Asking
from rota.errors import InvalidInput, Problem
from rota.model.cluster import Drain, Role
from rota.model.node import Members


class Nodes(Asking):
    """What may be asked about nodes."""

    async def nodes(self, *, gone: bool = False) -> Members:
        """The nodes that are believed alive; `gone`: those that were, too."""
        return await self._again(lambda: self._store.nodes(gone=gone))

    async def drain(self, names: Sequence[str], draining: bool) -> Members:
        """Put nodes, by name, on the offline list, or take them off it: also nodes that have not joined yet."""
        from rota.definitions import fields

        problems = []
        for name in names:
            try:
                fields.name(name)
            except ValueError as error:
                problems.append(Problem("name", str(error)))
        if problems:
            raise InvalidInput(problems)
        drains = [Drain(name=name) for name in names]
        await self._again(lambda: self._store.drain(drains) if draining else self._store.undrain(names, tuple(Role)))
        return await self.nodes()
