"""The servers of a simulation, which note what they commit: the product's own store and coordinator in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from rota.coordinators.memory import Realm
from rota.model import tables
from rota.model.dispatch import Finished, ItemEnd, Round
from rota.model.entry import Entry, folder_of
from rota.model.moment import micros
from rota.model.plan import Committed
from rota.ports import Clock
from rota.sim.history import Claimed, Fired, History, Line, Noted
from rota.sim.interleaving import InterleavedStore
from rota.sim.loop import SimLoop, dice
from rota.transactions.rescue import rescue

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

    async def transact(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        asking = self._history.asking
        done = await super().transact(work, *args, **kwargs)
        self._history.asking = asking  # others may have asked meanwhile
        if isinstance(done, Committed):
            self._note_committed(done)
        elif isinstance(done, Round):
            given = [it for grant in done.grants.values() for it in grant.items]
            self._history.items += [Noted(self._at_s, it.item_id, it.attempt) for it in given]
        elif isinstance(done, Finished):
            self._note_ends(done, *args, **kwargs)
        elif isinstance(done, bool) and work.__name__ == rescue.__name__:
            self._note_rescue(done, *args, **kwargs)
        return done

    def _note_committed(self, done: Committed) -> None:
        """A change settles what the jobs owe, and may define some."""
        for run in done.runs:
            assert run.slot_at is not None
            fired = Fired(
                self._at_s, micros(done.now), run.job_id, micros(run.slot_at), run.slots, self._history.asking
            )
            self._history.fired.append(fired)
        if done.plan.new_jobs:
            known = self._history.defined_us
            new = [row.id for row in self.tables.rows(tables.JOB) if row.id not in known]
            self._history.defined_us |= dict.fromkeys(new, micros(done.now))

    def _note_ends(self, done: Finished, ends: Sequence[ItemEnd], *_: Any) -> None:
        current = [end for end in ends if end.item_id not in done.stale]
        self._history.items += [Noted(self._at_s, end.item_id, end.attempt, end.outcome) for end in current]

    def _note_rescue(
        self, done: bool, node_id: int, beat: int, ends: Sequence[ItemEnd], *, seen_gone: bool = False, **_: Any
    ) -> None:
        if done and not seen_gone:
            self._history.counts.expired_leases += 1
        self._history.counts.lost_attempts += len(ends) if done else 0
        items = ", ".join(f"{end.item_id} ({end.attempt})" for end in ends)
        text = f"{self._history.asking} rescues node {node_id}: {items or 'nothing'}"
        self._history.lines.append(Line(self._at_s, text if done else f"{text}; it lives"))

    @property
    def now_at(self) -> datetime:
        return self._clock.wall()

    @property
    def _at_s(self) -> float:
        return self._clock.monotonic()
