"""The servers of a simulation, which note what they commit: the product's own store and coordinator in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from rota.coordinators.memory import Realm
from rota.model import tables
from rota.model.dispatch import Board, Finished, ItemEnd, ItemStart, Round
from rota.model.entry import Entry, folder_of
from rota.model.job import JobName
from rota.model.moment import micros
from rota.model.plan import Committed, Rule
from rota.ports import Clock
from rota.sim.history import Claimed, Fired, History, Line, Noted
from rota.sim.interleaving import InterleavedStore
from rota.sim.loop import SimLoop, dice
from rota.transactions.tx import Tx

T = TypeVar("T")

NOTED = ("jobs", "live", "beat", "election")


@dataclass(slots=True)
class WitnessRealm(Realm):
    """Notes who claims what, and when it is free again."""

    history: History = field(kw_only=True)

    def end(self, session: str) -> None:
        self.history.counts.expired_sessions += self.sessions[session] < self.clock.monotonic()
        super(WitnessRealm, self).end(session)

    def write(self, key: str, value: str, session: str | None = None, fence: int | None = None) -> Entry:
        was = self.entries.get(key)
        if session is not None and folder_of(key) in NOTED and (was is None or was.session != session):
            self.history.entries.append(Claimed(self.clock.monotonic(), key, session, value))
        return super(WitnessRealm, self).write(key, value, session, fence)

    def remove(self, key: str) -> None:
        was = self.entries[key]
        if was.session is not None and folder_of(key) in NOTED:
            self.history.entries.append(Claimed(self.clock.monotonic(), key, was.session, "", gone=True))
        super(WitnessRealm, self).remove(key)


class WitnessStore(InterleavedStore):
    """Notes slots that were fired, items that were given, and ends that were believed."""

    def __init__(self, clock: Clock, history: History, loop: SimLoop | None = None) -> None:
        """With a loop, transactions are under way at the same time."""
        chance = dice(history.scenario.seed, "transactions of the store")
        super().__init__(clock, loop, chance, history.counts)
        self.realm = WitnessRealm(clock, history=history)
        self._history = history
        self._store_clock = clock

    async def transact(self, work: Callable[[Tx], T], *, single_write: bool = False) -> T:
        asking = self._history.asking
        done = await super().transact(work, single_write=single_write)
        self._history.asking = asking  # others may have asked meanwhile
        return done

    def note_fired(self, done: Committed) -> Committed:
        for run in done.runs:
            assert run.slot_at is not None
            fired = Fired(
                self._at_s, micros(done.now), run.job_id, micros(run.slot_at), run.slots, self._history.asking
            )
            self._history.fired.append(fired)
        return done

    async def fire(self, job_ids: Sequence[int], rule: Rule) -> Committed:
        return self.note_fired(await super().fire(job_ids, rule))

    async def change(self, names: Sequence[JobName], rule: Rule, **more: Any) -> Committed:
        """A change settles what the jobs owe, and may define some."""
        before = {row.id for row in self.tables.rows(tables.JOB)}
        done = self.note_fired(await super().change(names, rule, **more))
        new = [row.id for row in self.tables.rows(tables.JOB) if row.id not in before]
        self._history.defined_us |= dict.fromkeys(new, micros(done.now))
        return done

    async def dispatch(self, node_id: int, board: Board, *, batch_max: int) -> Round:
        done = await super().dispatch(node_id, board, batch_max=batch_max)
        for grant in done.grants.values():
            self._history.items += [Noted(self._at_s, it.item_id, it.attempt) for it in grant.items]
        return done

    async def finish(self, ends: Sequence[ItemEnd], starts: Sequence[ItemStart] = (), **more: Any) -> Finished:
        done = await super().finish(ends, starts, **more)
        for end in ends:
            if end.item_id not in done.stale:
                self._history.items.append(Noted(self._at_s, end.item_id, end.attempt, end.outcome))
        return done

    async def rescue(self, node_id: int, beat: int, ends: Sequence[ItemEnd], **more: Any) -> bool:
        done = await super().rescue(node_id, beat, ends, **more)
        if done and not more.get("seen_gone", False):
            self._history.counts.expired_leases += 1
        self._history.counts.lost_attempts += len(ends) if done else 0
        items = ", ".join(f"{end.item_id} ({end.attempt})" for end in ends)
        text = f"{self._history.asking} rescues node {node_id}: {items or 'nothing'}"
        self._history.lines.append(Line(self._at_s, text if done else f"{text}; it lives"))
        return done

    @property
    def now_at(self) -> datetime:
        return self._store_clock.wall()

    @property
    def _at_s(self) -> float:
        return self._store_clock.monotonic()
