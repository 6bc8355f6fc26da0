"""What is built on the coordinator port: locks (S0.2, S0.3), elections (S4.3, S4.11), queues (S3.24) and notices; and
what schedulers keep as entries: who they are, the plan of a leader, hand-overs and repairs.

    lock    free ──claim──> held, once ──enter──> held, twice ──leave──> held, once ──leave──> free
                              └── the session ends: whoever held it finds out at its next fenced write

    queue   put ──> waiting ──take──> taken, while the taker's session lives ──done──> gone
                       ^                     └── its session ends ──┐
                       └────────────────────────────────────────────┘

A lock says who should try. What must not be done twice is fenced where it is written, by `fence` or otherwise. Whoever
leads may be deposed without noticing, for as long as a session; so what a leader writes carries an epoch, and is
written over the version that it has read.

An entry that cannot be understood counts as one that is not there: another version of rota, or a person, wrote it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from rota.model.cluster import Handover, Peer, Repair, ScopePlan
from rota.model.entry import Entry
from rota.model.folders import ELECTION, HANDOVER, NOTICE, REPAIRS
from rota.model.value import decode, encode
from rota.ports import Clock, Coordinator

LOOK_S = 0.5
"""How often whoever waits looks by itself, whether it was woken or not."""


class Lock:
    """One lock, as one client sees it. Use it as `async with lock:`."""

    def __init__(self, coordinator: Coordinator, clock: Clock, name: str) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._key = f"lock/{name}"
        self._task: asyncio.Task[object] | None = None
        self._depth = 0
        self._turn = asyncio.Lock()
        self._news = asyncio.Event()
        self._listening = False
        self.fence = 0
        """The number of this holding; a later one has a higher."""

    async def __aenter__(self) -> Self:
        if self._task is not asyncio.current_task():
            await self._turn.acquire()
            try:
                await self._claim()
            except BaseException:
                self._turn.release()
                raise
            self._task = asyncio.current_task()
        self._depth += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._task = None
        try:
            await self._coordinator.release({self._key: self.fence})
        finally:
            self._turn.release()

    async def _claim(self) -> None:
        if not self._listening:
            self._listening = True
            self._coordinator.listen("lock", self._news.set)
        while True:
            self._news.clear()
            won = await self._coordinator.claim({self._key: self._coordinator.session or ""})
            if self._key in won:
                self.fence = won[self._key]
                return
            await self._wait()

    async def _wait(self) -> None:
        looking = asyncio.ensure_future(self._clock.sleep(LOOK_S))
        told = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({looking, told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            looking.cancel()
            told.cancel()


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


class Taken(NamedTuple):
    """An entry in hand."""

    name: str
    value: str
    version: int
    fence: int


class Queue:
    """One queue, as one client sees it, with two keys: the entry itself, which lasts, and its taking, which is a claim.
    It is gone before its claim is released, so whoever takes it next finds that it is not there."""

    def __init__(self, coordinator: Coordinator, clock: Clock, name: str) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._entries = f"queue/{name}"
        self._takings = f"taken/{name}"

    async def put(self, value: str, name: str | None = None) -> str:
        """Add an entry; one of the same name is added once."""
        name = name or self._clock.token()
        await self._coordinator.put(f"{self._entries}/{name}", value, version=0)
        return name

    async def waiting(self) -> frozenset[str]:
        """The names of the entries that nobody has in hand."""
        names = {key.rpartition("/")[2] for key in await self._coordinator.keys(self._entries)}
        return frozenset(names - {key.rpartition("/")[2] for key in await self._coordinator.keys(self._takings)})

    async def take(self, limit: int) -> list[Taken]:
        """Get some entries in hand."""
        names = sorted(await self.waiting())[:limit]
        won = await self._coordinator.claim({f"{self._takings}/{name}": "" for name in names})
        taken, gone = [], {}
        for key, fence in won.items():
            name = key.rpartition("/")[2]
            entry = await self._coordinator.get(f"{self._entries}/{name}")
            if entry is None:
                gone[key] = fence
            else:
                taken.append(Taken(name, entry.value, entry.version, fence))
        await self._coordinator.release(gone)
        return taken

    async def done(self, entry: Taken) -> bool:
        """Remove an entry that was taken. False: somebody else has done so."""
        removed = await self._coordinator.delete(f"{self._entries}/{entry.name}", entry.version)
        await self.give_back(entry)
        return removed

    async def give_back(self, entry: Taken) -> None:
        """Let others have it."""
        await self._coordinator.release({f"{self._takings}/{entry.name}": entry.fence})


TRIES = 5
"""Whoever claims a lasting entry again and again is stronger; the repairer looks again later."""


async def notify(coordinator: Coordinator, clock: Clock, topic: str) -> None:
    """Wake whoever listens to a topic."""
    await put_lasting(coordinator, f"{NOTICE}/{topic}", clock.token())


def on_notice(coordinator: Coordinator, topic: str, wake: Callable[[], None]) -> None:
    """Call `wake` after a notice of this topic."""
    coordinator.listen(f"{NOTICE}/{topic}", wake)


async def put_lasting(coordinator: Coordinator, key: str, value: str) -> bool:
    """Write an entry that lasts, over a claim if there is one. Says whether it was written."""
    for _ in range(TRIES):
        if await coordinator.put(key, value) is not None:
            return True
        entry = await coordinator.get(key)
        if entry is not None:
            await coordinator.delete(key, entry.version)
    return False


def read_peer(entry: Entry) -> Peer | None:
    """What a scheduler tells of itself under `live` (S4.4)."""
    try:
        return decode(entry.value, Peer)
    except msgspec.MsgspecError:
        return None


def read_member(entry: Entry) -> Peer | None:
    """A scheduler that lives; none for an entry that no session keeps, or that is not its own."""
    peer = None if entry.session is None else read_peer(entry)
    return peer if peer is not None and peer.name == entry.name else None


def read_plan(entry: Entry | None) -> ScopePlan | None:
    """The plan of a leader, if there is a sound one."""
    try:
        plan = None if entry is None else decode(entry.value, ScopePlan)
    except msgspec.MsgspecError:
        return None
    return plan if plan is not None and plan.is_sound else None


def handover_key(giver: str) -> str:
    """Where the hand-overs of a giver are: one entry, written by itself or for a person."""
    return f"{HANDOVER}/{giver}"


def read_handover(entry: Entry) -> dict[int, Handover]:
    """Which jobs of a giver go to whom."""
    try:
        return {int(job_id): it for job_id, it in decode(entry.value, dict[str, Handover]).items()}
    except (msgspec.MsgspecError, ValueError):
        return {}


def write_handover(jobs: Mapping[int, Handover]) -> str:
    return encode({str(job_id): it for job_id, it in jobs.items()})


def repairs_key(name: str) -> str:
    """Where the repairs of a scheduler are: what it put right in the coordinator of late, for the doctor to tell."""
    return f"{REPAIRS}/{name}"


def read_repairs(entry: Entry) -> tuple[Repair, ...]:
    try:
        return decode(entry.value, tuple[Repair, ...])
    except msgspec.MsgspecError:
        return ()


def write_repairs(repairs: Sequence[Repair]) -> str:
    return encode(tuple(repairs))
