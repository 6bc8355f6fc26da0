"""Known-wrong variants of the product, each a patch. The simulation must find every one of them; if it does not, it is
no test. Where the store in memory is too atomic to be wrong in that way, it is made less so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import msgspec
import pytest

from rota.backends.memory.finishing import Finishing
from rota.core import rate, room
from rota.core.dispatch import Rounds
from rota.core.fire import Fire
from rota.core.placement import claim
from rota.loops.member import Member
from rota.loops.moment import Moment
from rota.loops.placement import beater, scoper
from rota.loops.placement.attendant import Attendant
from rota.loops.placement.claimer import Claimer
from rota.loops.placement.handover import Handovers
from rota.loops.placement.known import Known
from rota.loops.placement.scoper import Scoper
from rota.loops.rescuer import Rescuer
from rota.loops.scheduler import Scheduler
from rota.model.cluster import Peer, Placement
from rota.model.plan import Committed, Facts, Pending, Plan
from rota.model.work import Limit
from rota.sim.crew import SimCrew
from rota.sim.plan import Mode
from rota.sim.witness import WitnessStore

Patch = Callable[[pytest.MonkeyPatch], None]

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A variant, where it shows, as what, and how many seeds it may take to see it."""

    patch: Patch
    shows_as: tuple[str, ...]
    placement: Placement | None = None
    mode: Mode | None = None
    seeds_max: int = 60
    is_slow: bool = False
    """Whether it takes so many seeds that it is left to the night."""

    def __str__(self) -> str:
        return self.patch.__name__


class Part:
    """A rule that decides as `Fire` does and commits only a part of it. What it decided can be read afterwards."""

    def __init__(self, part: Callable[[Plan], Plan]) -> None:
        self._part = part
        self.whole = Plan()

    def keys(self, jobs: Any) -> Any:
        return Fire().keys(jobs)

    def decide(self, facts: Facts) -> Plan:
        self.whole = Fire().decide(facts)
        return self._part(self.whole)


def advances(plan: Plan) -> Plan:
    return Plan(jobs=plan.jobs)


def nothing(plan: Plan) -> Plan:
    return Plan()


def inserts(plan: Plan) -> Plan:
    """Nothing says any more that a run is there already."""
    runs = [msgspec.structs.replace(run, key=f"{run.key} {next(_numbers)}") for run in plan.runs]
    return msgspec.structs.replace(plan, jobs=(), runs=tuple(runs))


def writes_plans(patch: pytest.MonkeyPatch) -> None:
    """A transaction of its own for what another one decided."""

    async def write_plan(self: WitnessStore, plan: Plan) -> Committed:
        now = self.now_at
        moves = tuple(move for move in plan.moves if self._runs[move.run_id].state is move.was)
        plan = msgspec.structs.replace(plan, moves=moves)
        return self.note_fired(Committed(now=now, plan=plan, runs=tuple(self._commit(plan, now))))

    patch.setattr(WitnessStore, "write_plan", write_plan, raising=False)


def fires_from_memory_after_advancing(patch: pytest.MonkeyPatch) -> None:
    async def fire_batch(self: Scheduler, ids: Sequence[int]) -> dict[int, datetime | None]:
        rule = Part(advances)
        done = await self._store.fire(ids, rule)
        await self._store.write_plan(inserts(rule.whole))  # type: ignore[attr-defined]
        return {change.now.id: change.now.next_fire_at for change in done.plan.jobs}

    writes_plans(patch)
    patch.setattr(Scheduler, "_fire_batch", fire_batch)


def inserts_then_advances(patch: pytest.MonkeyPatch) -> None:
    async def fire_batch(self: Scheduler, ids: Sequence[int]) -> dict[int, datetime | None]:
        look = Part(nothing)
        await self._store.fire(ids, look)
        await self._store.write_plan(inserts(look.whole))  # type: ignore[attr-defined]
        done = await self._store.fire(ids, Part(advances))
        return {change.now.id: change.now.next_fire_at for change in done.plan.jobs}

    writes_plans(patch)
    patch.setattr(Scheduler, "_fire_batch", fire_batch)


def prunes_the_row_that_says_a_slot_was_fired(patch: pytest.MonkeyPatch) -> None:
    """Each fires what it remembers to be due; a row per slot keeps others from it, until the next slot's takes its
    place."""
    turn_at = Scheduler._turn_at
    seen: dict[tuple[int, int], datetime] = {}

    def remember(self: Scheduler, it: Pending) -> datetime:
        seen[id(self), it.job_id] = it.next_fire_at
        return turn_at(self, it)

    async def fire_batch(self: Scheduler, ids: Sequence[int]) -> dict[int, datetime | None]:
        wanted = {job_id: seen[id(self), job_id] for job_id in ids}
        done = await self._store.fire_seen(wanted)  # type: ignore[attr-defined]
        return {change.now.id: change.now.next_fire_at for change in done.plan.jobs}

    patch.setattr(Scheduler, "_turn_at", remember)
    patch.setattr(Scheduler, "_fire_batch", fire_batch)
    patch.setattr(WitnessStore, "fire_seen", _fire_seen, raising=False)


async def _fire_seen(self: WitnessStore, seen: Mapping[int, datetime]) -> Committed:
    before = {job_id: self._jobs[job_id] for job_id in seen}
    for job_id, at in seen.items():
        self._jobs[job_id] = msgspec.structs.replace(
            before[job_id], next_fire_at=at, next_slot_at=at, settled_at=at - timedelta(seconds=1)
        )
    known = {key.key for key in self._keys if key.job_id in seen}
    rule = Part(lambda plan: msgspec.structs.replace(plan, runs=tuple(it for it in plan.runs if it.key not in known)))
    done = self.note_fired(await super(WitnessStore, self).fire(list(seen), rule))
    for job_id, was in before.items():
        now = self._jobs[job_id]
        if was.next_fire_at is not None and now.next_fire_at is not None and was.next_fire_at > now.next_fire_at:
            self._jobs[job_id] = was
        newest = max((key for key in self._keys if key.job_id == job_id), key=lambda key: key.key, default=None)
        for key in [key for key in self._keys if key.job_id == job_id and key != newest]:
            del self._keys[key]
    return done


def reaps_by_the_clock_of_the_node(patch: pytest.MonkeyPatch) -> None:
    rescue = Finishing.rescue

    def is_over(self: Rescuer, node: Any, now: datetime, hold_s: float) -> bool:
        return self._clock.wall() > node.lease_until + timedelta(seconds=self._config.margin_s + hold_s)

    async def trusting(self: Finishing, *args: Any, **kwargs: Any) -> bool:
        return await rescue(self, *args, **{**kwargs, "seen_gone": True})

    patch.setattr(Rescuer, "_is_over", is_over)
    patch.setattr(Finishing, "rescue", trusting)


def counts_seats_before_it_takes_them(patch: pytest.MonkeyPatch) -> None:
    """What counts is what was seen at the last look, not what is there."""
    rebuild = Rounds.rebuild
    looked: dict[int, Any] = {}

    def stale(self: Rounds, ready: Any, seated: Any) -> None:
        rebuild(self, ready, looked.get(id(self), ()))
        looked[id(self)] = seated

    patch.setattr(Rounds, "rebuild", stale)


def checks_no_token(patch: pytest.MonkeyPatch) -> None:
    is_current = Finishing._is_current

    def lax(self: Finishing, end: Any) -> bool:
        it = self._queue.get(end.item_id)
        return it is not None and is_current(self, msgspec.structs.replace(end, attempt=it.attempt, round=None))

    patch.setattr(Finishing, "_is_current", lax)


def has_no_dead_mans_switch(patch: pytest.MonkeyPatch) -> None:
    renew = SimCrew.renew
    patch.setattr(SimCrew, "renew", lambda self, until_s: renew(self, until_s + 3600))


def counts_the_lease_from_the_reply(patch: pytest.MonkeyPatch) -> None:
    once = Member.once

    async def late(self: Member) -> float:
        crew, self._crew = self._crew, None
        try:
            rest_s = await once(self)
        finally:
            self._crew = crew
        if crew is not None and self._identity.id is not None:
            crew.renew(self._clock.boottime() + self._config.lease_s - self._config.margin_s)
        return rest_s

    patch.setattr(Member, "once", late)


def acquires_at_the_limit(patch: pytest.MonkeyPatch) -> None:
    wanted = claim._wanted
    patch.setattr(claim, "_wanted", lambda facts, order, held: wanted(facts, order, held - 1))


def has_a_limit_that_survives_no_crash(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claim, "limit", lambda jobs, schedulers, faults: 1 + jobs // max(schedulers, 1))


def sweeps_only_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Claimer, "_listen", lambda self: None)
    patch.setattr(Claimer, "_rest_s", lambda self, facts, won: 3600.0)


def goes_on_by_an_old_plan(patch: pytest.MonkeyPatch) -> None:
    adopt = Scoper._adopt

    def once(self: Scoper, new: Any) -> None:
        if self._plan is None:
            adopt(self, new)

    patch.setattr(Scoper, "_adopt", once)
    patch.setattr(Scoper, "lose", lambda self: None)


def beats_by_its_own_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(beater, "Moment", lambda clock, read: Moment(clock, clock.wall()))


def hands_over_to_nobody(patch: pytest.MonkeyPatch) -> None:
    async def silent(self: Handovers, jobs: Any) -> bool:
        return True

    patch.setattr(Handovers, "announce", silent)


def plans_anew_only_when_the_number_of_schedulers_changes(patch: pytest.MonkeyPatch) -> None:
    """A4.7"""
    needs_plan = scoper.needs_plan

    def counted(last: Any, peers: Any, jobs: Any, strategy: Any) -> bool:
        if last is None or len(peers) != len(last.names):
            return needs_plan(last, peers, jobs, strategy)
        return False

    patch.setattr(scoper, "needs_plan", counted)


def knows_no_offline_list(patch: pytest.MonkeyPatch) -> None:
    async def nobody(self: Known) -> frozenset[str]:
        return frozenset()

    patch.setattr(Known, "drained", nobody)


def dates_starts_when_they_are_given(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(room, "remember", lambda limit, now_us: rate.begin(rate.remember(limit, now_us), [now_us]))


def keeps_what_it_remembers_of_starts_in_a_take_over(patch: pytest.MonkeyPatch) -> None:
    set_limits = Rounds.set_limits

    def keep(self: Rounds, limits: Sequence[Limit]) -> None:
        known = self._limits
        set_limits(self, [known.get(it.name, it) for it in limits])

    patch.setattr(Rounds, "set_limits", keep)


CLAIM, SCOPE, BEAT = Placement.CLAIM, Placement.SCOPE, Placement.BEAT
SAFETY, LIVENESS = Mode.SAFETY, Mode.LIVENESS


def is_present_before_it_has_told_all(patch: pytest.MonkeyPatch) -> None:
    introduce = Attendant._introduce

    async def early(self: Attendant, bare: Peer) -> bool:
        self.session = self._coordinator.session
        return await introduce(self, bare)

    patch.setattr(Attendant, "_introduce", early)


MUTANTS = (
    Mutant(fires_from_memory_after_advancing, ("lost",)),
    Mutant(inserts_then_advances, ("doubled",)),
    Mutant(prunes_the_row_that_says_a_slot_was_fired, ("doubled",), seeds_max=200),
    Mutant(reaps_by_the_clock_of_the_node, ("two_attempts", "cap")),
    Mutant(counts_seats_before_it_takes_them, ("cap",)),
    Mutant(checks_no_token, ("stale",)),
    Mutant(has_no_dead_mans_switch, ("two_attempts", "cap")),
    Mutant(counts_the_lease_from_the_reply, ("two_attempts",), seeds_max=150),
    Mutant(acquires_at_the_limit, ("above_limit",), CLAIM),
    Mutant(has_a_limit_that_survives_no_crash, ("not_survivable",), CLAIM, LIVENESS),
    Mutant(sweeps_only_once, ("unowned",), CLAIM, LIVENESS),
    Mutant(goes_on_by_an_old_plan, ("unowned", "two_owners"), SCOPE, LIVENESS),
    Mutant(beats_by_its_own_clock, ("late",), BEAT, LIVENESS),
    Mutant(hands_over_to_nobody, ("bounced",), CLAIM),
    Mutant(is_present_before_it_has_told_all, ("untold",), None, LIVENESS),
    Mutant(plans_anew_only_when_the_number_of_schedulers_changes, ("unowned", "two_owners"), SCOPE, LIVENESS),
    Mutant(knows_no_offline_list, ("drained",), mode=LIVENESS),
    Mutant(dates_starts_when_they_are_given, ("rate",), seeds_max=300, is_slow=True),
    Mutant(keeps_what_it_remembers_of_starts_in_a_take_over, ("rate",), seeds_max=150),
)
