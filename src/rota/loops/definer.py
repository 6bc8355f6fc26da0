"""Keep the store in step with a folder of definitions (S0.47).

At start, on every change and in a sweep all definitions are applied; those that are stored already cost nothing. A
file with an error is told of and left out; the others are applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rota.config import DefinitionsConfig
from rota.errors import InvalidInput, Problem, Unreadable
from rota.logger import log
from rota.loops.loop import Loop
from rota.model.job import Definition, JobName
from rota.ports import Clock

DONE = {"create": "job.created", "change": "job.changed", "adopt": "job.adopted"}


class Source(Protocol):
    """Where definitions come from."""

    async def fingerprint(self) -> object:
        """A cheap value that differs when anything changed."""

    def load(self) -> Coroutine[Any, Any, Found]:
        """Everything that can be read, and what is wrong with the rest."""


class Found(Protocol):
    """What a load brings."""

    @property
    def definitions(self) -> Sequence[Definition]: ...

    @property
    def problems(self) -> Sequence[Problem]: ...


class Applied(Protocol):
    """What became of one definition: create, change, adopt, nothing or refuse."""

    @property
    def name(self) -> JobName: ...

    @property
    def action(self) -> str: ...

    @property
    def reason(self) -> str: ...


@dataclass(eq=False, repr=False)
class Definer(Loop):
    """Applies definitions. Losing a notice of a change costs one sweep, never a definition."""

    source: Source
    apply: Callable[[Sequence[Definition], Any], Awaitable[Sequence[Applied]]]
    clock: Clock
    config: DefinitionsConfig
    on_loaded: Callable[[Any], Awaitable[None]] | None = None
    _seen: object = None
    _swept_at: float | None = None
    _loading: asyncio.Task[Found] | None = None
    _unread: set[str] = field(default_factory=set)
    """Jobs that this release cannot read, which is told once."""
    problems: tuple[Problem, ...] = ()
    _refused: frozenset[tuple[JobName, str]] = field(default_factory=frozenset)

    async def once(self) -> float:
        """Apply if something changed or a sweep is due."""
        seen, now = await self.source.fingerprint(), self.clock.monotonic()
        if seen != self._seen or self._swept_at is None or now - self._swept_at >= self.config.sweep_s:
            await self._load_and_apply()
            self._seen, self._swept_at = seen, now
        return self.config.watch_s

    def stop(self) -> None:
        """Do not wait for a file that takes long to read."""
        super().stop()
        if self._loading is not None:
            self._loading.cancel()

    async def _load_and_apply(self) -> None:
        self._loading = asyncio.ensure_future(self.source.load())
        await asyncio.wait({self._loading})
        if self._loading.cancelled():
            return
        found = self._loading.result()
        definitions, problems = found.definitions, found.problems
        if tuple(problems) != self.problems:
            for problem in problems:
                log.error("definition.wrong", problem=str(problem))
            self.problems = tuple(problems)
        if self.on_loaded is not None:
            await self.on_loaded(found)
        if not definitions:
            return
        try:
            actions = await self._applied(definitions, found)
        except InvalidInput as error:
            log.warning("definition.not_applied", reason=str(error))
            return
        for it in actions:
            if it.action not in ("nothing", "refuse"):
                log.info(DONE[it.action], job=str(it.name))
        refused = frozenset((it.name, it.reason) for it in actions if it.action == "refuse")
        for name, reason in sorted(refused - self._refused):
            log.error("job.refused", job=str(name), reason=reason)
        self._refused = refused

    async def _applied(self, definitions: Sequence[Definition], found: Found) -> Sequence[Applied]:
        """All together. A job that a newer release has changed, and this one cannot read, is left as it is; it is found
        by halving."""
        try:
            return await self.apply(definitions, found)
        except Unreadable as fault:
            if len(definitions) == 1:
                if fault.record not in self._unread:
                    self._unread.add(fault.record)
                    log.error("job.newer", reason=fault.reason)  # noqa: TRY400
                return []
        half = len(definitions) // 2
        return [*await self._applied(definitions[:half], found), *await self._applied(definitions[half:], found)]
