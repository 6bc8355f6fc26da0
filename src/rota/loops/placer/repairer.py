"""Repair: look over all entries of the coordinator now and then, and put right what is not as it should be.

    read everything, `live` last ──> core/placement/layout ──> own claims: write again what they should say
                                                          └──> what is wrong at two looks in a row: remove it

Every scheduler does so, and whoever comes second finds it done: what is removed is removed by version. What was put
right is kept in `repairs/NODE` for an hour, for the doctor to tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.coordinators.recipes import notify, repairs_key, write_repairs
from rota.core.doctor import REPAIRS_KEPT
from rota.core.placement.layout import Wrong, wrong
from rota.logger import log
from rota.loops.loop import Loop
from rota.loops.placer.session_keeper import SessionKeeper
from rota.model.cluster import Repair
from rota.model.entry import Entry, folder_of
from rota.model.folders import ALL, CLAIMED, JOBS, LASTING
from rota.ports import Clock, Coordinator, Store

EVERY_SESSIONS = 4.0
IDLE_SHARE = 40.0
"""How many times as long as an audit took the next one waits: very many claims are read rarely."""
KEPT_MAX = 20


@dataclass(eq=False, repr=False)
class Repairer(Loop):
    """Repairs what the coordinator lost or holds wrongly, and keeps a list of that for the doctor."""

    store: Store
    coordinator: Coordinator
    clock: Clock
    keeper: SessionKeeper
    every_s: float | None = None
    _suspects: frozenset[tuple[str, int]] = field(default_factory=frozenset)
    _news: list[str] = field(default_factory=list)
    _repairs: tuple[Repair, ...] = ()

    def note(self, what: str) -> None:
        log.info("coordinator.repaired", what=what)
        self._news.append(what)
        self.wake()

    async def once(self) -> float:
        if self.keeper.session is None:
            return self.coordinator.ttl_s
        began_s = self.clock.monotonic()
        found = [it for folder in ("", *LASTING, *CLAIMED) for it in await self.coordinator.read(folder)]
        faults = wrong(found)
        for it in faults:
            await self._put_right(it)
        self._suspects = frozenset((it.entry.key, it.entry.version) for it in faults)
        await self._enlist(found)
        await self._tell_repairs(found)
        took_s = self.clock.monotonic() - began_s
        every_s = EVERY_SESSIONS * self.coordinator.ttl_s if self.every_s is None else self.every_s
        return min(self.coordinator.ttl_s, every_s) if faults else max(every_s, IDLE_SHARE * took_s)

    async def _put_right(self, it: Wrong) -> None:
        key, version = it.entry.key, it.entry.version
        if it.value is not None:
            if it.entry.session == self.keeper.session and await self.coordinator.update(key, it.entry.fence, it.value):
                self.note(f"{key}: {it.why}; it was written anew")
        elif (key, version) in self._suspects and await self.coordinator.delete(key, version):
            self.note(f"{key}: {it.why}; it was removed")
            if folder_of(key) == JOBS:  # whoever believes to have it looks again
                await notify(self.coordinator, self.clock, "release")

    async def _enlist(self, found: list[Entry]) -> None:
        key = f"{ALL}/{self.keeper.peer.name}"
        if not any(it.key == key and it.session is None and it.value == self.keeper.enlisted for it in found):
            self.note(f"{key} was lost or changed, and was told anew")
            await self.keeper.enlist()

    async def _tell_repairs(self, found: list[Entry]) -> None:
        """Keep what was put right of late where the doctor finds it."""
        if not self._news and not self._repairs:
            return
        now = await self.store.now()
        news, self._news = self._news, []
        kept = [it for it in self._repairs if it.at > now - REPAIRS_KEPT] + [Repair(at=now, what=what) for what in news]
        self._repairs = tuple(kept[-KEPT_MAX:])
        key, told = repairs_key(self.keeper.peer.name), write_repairs(self._repairs)
        if not any(it.key == key and it.value == told for it in found):
            await self.coordinator.put(key, told)
