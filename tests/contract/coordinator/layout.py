"""Every key of a cluster's layout, every way to damage it, and what a cluster that came back by itself looks like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from rota.coordinators.recipes import LEADER, read_member, read_plan
from rota.core.placement.beat import lock_key, tick_of
from rota.core.placement.layout import wrong
from rota.loops.placer.claim import ClaimPlacer
from rota.loops.placer.participation import Participation
from rota.loops.placer.scope import ScopePlacer
from rota.model.cluster import Handover, Peer, ScopePlan, Strategy
from rota.model.cluster import Part as Span
from rota.model.entry import Entry
from rota.model.folders import ALL, BEAT, CLAIMED, HANDOVER, JOBS, LASTING, LIVE, SHARD
from rota.model.value import encode
from rota.ports import Coordinator, Store
from tests.contract.coordinator.damage import Damage

KINDS = ("delete", "garble", "alter", "replace", "seize")
GHOST = Peer(name="ghost", incarnation="ghost", address="ghost:7700")
PLAN = ScopePlan(
    epoch=50, strategy=Strategy.BALANCED, names=("ghost",), weights=(1.0,), parts=(Span(name="ghost", first=1),)
)


class Blow(NamedTuple):
    """One thing that is done to one key."""

    kind: str
    key: str

    async def fall(self, damage: Damage, coordinator: Coordinator) -> None:
        match self.kind:
            case "delete":
                await damage.delete(self.key)
            case "garble":
                await damage.garble(self.key)
            case "alter":
                entry = None if is_hidden(self.key) else await coordinator.get(self.key)
                if entry is not None:
                    await damage.garble(self.key, altered(entry))
            case "replace":
                await damage.replace(self.key, foreign(self.key))
            case "seize":
                await damage.seize(self.key, "somebody")


async def blows(
    coordinator: Coordinator, damage: Damage, placement: str, now: datetime, beat_s: float
) -> tuple[Blow, ...]:
    """Every key that is there, or may be, and some that never should; and what the coordinator keeps beside them."""
    there = {key for folder in ("", *LASTING, *CLAIMED) for key in await coordinator.keys(folder)}
    may_be = {SHARD, LEADER, LIVE, f"{HANDOVER}/a", f"{HANDOVER}/ghost", f"{LIVE}/ghost", f"{ALL}/ghost"}
    may_be |= {f"{JOBS}/1", f"{JOBS}/01", f"{JOBS}/ghost", f"{BEAT}/ghost", "notice/drain", "repairs/a"}
    may_be |= {lock_key("fire", tick_of(now, beat_s) + ahead) for ahead in (0, 1)}
    keys = sorted({*there, *may_be, *await damage.hidden()} - (set() if placement == "claim" else {f"{JOBS}/1"}))
    others = {f"{JOBS}/{number}" for number in range(3, 100)}  # one job is like another
    return tuple(Blow(kind, key) for key in keys if key not in others for kind in KINDS)


def is_hidden(key: str) -> bool:
    """Whether it is no key of an entry."""
    return any(word.startswith(".") for word in key.split("/"))


def altered(entry: Entry) -> str:
    """What could well be there, and is not right."""
    plan, peer = read_plan(entry), read_member(entry)
    if plan is not None:
        return encode(replace(plan, epoch=1, parts=_shifted(plan.parts) if plan.parts else ()))
    if peer is not None:
        return encode(replace(peer, faults=9, held=99, epoch=0))
    return foreign(entry.key)


def foreign(key: str) -> str:
    """What somebody else might write there."""
    folder, _, name = key.rpartition("/")
    if key == LIVE:
        return encode(PLAN)
    if folder in (LIVE, ALL):
        return encode(GHOST)
    if folder == HANDOVER:
        return encode({"1": Handover(to="ghost"), "2": Handover(to=name)})
    return "99" if key == SHARD else "ghost"


async def faults(
    parts: Mapping[str, Participation], coordinator: Coordinator, store: Store, jobs: Sequence[int], beat_s: float
) -> list[str]:
    """What is not as it should be in a cluster in which nothing happens."""
    return [
        *[f"{it.entry.key}: {it.why}" async for it in _wrong(coordinator)],
        *[it async for it in _untold(parts, coordinator)],
        *_unowned(parts, jobs, await store.now(), beat_s),
        *[it async for it in _unplanned(parts, coordinator)],
    ]


async def _wrong(coordinator: Coordinator):  # type: ignore[no-untyped-def]
    found = [it for folder in ("", *LASTING, *CLAIMED) for it in await coordinator.read(folder)]
    for it in wrong(found):
        yield it


async def _untold(parts: Mapping[str, Participation], coordinator: Coordinator):  # type: ignore[no-untyped-def]
    for name, part in parts.items():
        entry = await coordinator.get(f"{LIVE}/{name}")
        if entry is None or read_member(entry) != part.keeper.peer:
            yield f"{LIVE}/{name} is {entry}, and not {part.keeper.peer}"
        if part.keeper.session is None:
            yield f"{name} does not take part"
        listed = await coordinator.get(f"{ALL}/{name}")
        if listed is None or listed.value != part.keeper.enlisted:
            yield f"{ALL}/{name} is {listed}"


def _unowned(parts: Mapping[str, Participation], jobs: Sequence[int], now: datetime, beat_s: float) -> Iterator[str]:
    for job_id in jobs:
        owners = [name for name, part in parts.items() if part.placer.owns(job_id, now)]
        if len(owners) != 1:
            yield f"job {job_id} is of {owners}"
    for name, part in parts.items():
        if isinstance(part.placer, ClaimPlacer) and part.keeper.peer.held != len(part.placer.held):
            yield f"{name} tells {part.keeper.peer.held} jobs, and has {len(part.placer.held)}"


async def _unplanned(parts: Mapping[str, Participation], coordinator: Coordinator):  # type: ignore[no-untyped-def]
    if not any(isinstance(part.placer, ScopePlacer) for part in parts.values()):
        return
    plan = read_plan(await coordinator.get(LIVE))
    if plan is None or set(plan.names) != set(parts):
        yield f"the plan is {plan}"
        return
    for name, part in parts.items():
        if isinstance(part.placer, ScopePlacer) and part.placer._plan != plan:
            yield f"{name} acts by {part.placer._plan}, and the plan is {plan}"


def _shifted(parts: tuple[Span, ...]) -> tuple[Span, ...]:
    """The same owners in the same order, and one job is another's: as even as a plan has to be."""
    (first, second, *rest) = parts
    assert first.last is not None
    return (replace(first, last=first.last + 1), replace(second, first=second.first + 1), *rest)
