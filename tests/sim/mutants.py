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

from rota.core.dispatch import rate, room
from rota.core.dispatch.board import Rounds
from rota.core.fire import Fire
from rota.core.placement import claim
from rota.loops.member import Member
from rota.loops.placer import beat, scope
from rota.loops.placer.claim import ClaimPlacer, Handovers
from rota.loops.placer.cluster_view import ClusterView
from rota.loops.placer.scope import ScopePlacer
from rota.loops.placer.session_keeper import SessionKeeper
from rota.loops.rescuer import Rescuer
from rota.loops.scheduler import Scheduler
from rota.loops.store_time import StoreTime
from rota.model import tables
from rota.model.cluster import Peer, Placement
from rota.model.moment import micros
from rota.model.plan import Committed, Facts, Pending, Plan
from rota.model.records import definition_of, item_of
from rota.model.states import Cause, RunState
from rota.model.work import Limit
from rota.sim.plan import Mode
from rota.sim.surroundings import SimRunner
from rota.sim.witness import WitnessStore
from rota.transactions import finish as finish_module
from rota.transactions import rescue as rescue_module
from rota.transactions.decide import Decision, ReleasedRuns
from rota.transactions.fire import fire
from rota.transactions.plan import write_plan
from rota.transactions.tx import Tx

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

    async def write_part(self: WitnessStore, plan: Plan) -> Committed:
        return await self.transact(_written, plan)

    patch.setattr(WitnessStore, "write_plan", write_part, raising=False)


def _written(tx: Tx, plan: Plan) -> Committed:
    """Write a plan that was made before, as far as its runs still are as they were."""
    now = tx.read_clock()
    states = {row.id: row.state for row in tx.rows.read(tables.RUN, [move.run_id for move in plan.moves])}
    plan = msgspec.structs.replace(plan, moves=tuple(it for it in plan.moves if states[it.run_id] == it.was))
    started = [move.run_id for move in plan.moves if move.now is RunState.RUNNING]
    fired = {row.id: (row, definition_of(row)) for row in tx.ask.fired_with(started)}
    items = [item_of((*it.item, it.live)) for it in tx.ask.live_items(started)]
    decision = Decision(Facts(now=now, jobs=(), crowds={}), plan, ReleasedRuns(fired, items))
    return Committed(now=now, plan=plan, runs=tuple(write_plan(tx, decision)))


def fires_from_memory_after_advancing(patch: pytest.MonkeyPatch) -> None:
    async def fire_batch(self: Scheduler, ids: Sequence[int]) -> dict[int, datetime | None]:
        rule = Part(advances)
        done = await self.store.transact(fire, ids, rule)
        await self.store.write_plan(inserts(rule.whole))  # type: ignore[attr-defined]
        return {change.now.id: change.now.next_fire_at for change in done.plan.jobs}

    writes_plans(patch)
    patch.setattr(Scheduler, "_fire_batch", fire_batch)


def inserts_then_advances(patch: pytest.MonkeyPatch) -> None:
    async def fire_batch(self: Scheduler, ids: Sequence[int]) -> dict[int, datetime | None]:
        look = Part(nothing)
        await self.store.transact(fire, ids, look)
        await self.store.write_plan(inserts(look.whole))  # type: ignore[attr-defined]
        done = await self.store.transact(fire, ids, Part(advances))
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
        done = await self.store.fire_seen(wanted)  # type: ignore[attr-defined]
        return {change.now.id: change.now.next_fire_at for change in done.plan.jobs}

    patch.setattr(Scheduler, "_turn_at", remember)
    patch.setattr(Scheduler, "_fire_batch", fire_batch)
    patch.setattr(WitnessStore, "fire_seen", _fire_seen, raising=False)


async def _fire_seen(self: WitnessStore, seen: Mapping[int, datetime]) -> Committed:
    before = {row.id: row for row in self.tables.rows(tables.JOB) if row.id in seen}
    for job_id, at in seen.items():
        row, at_us = before[job_id], micros(at)
        self.tables.put(tables.JOB, row._replace(next_fire_at=at_us, next_slot_at=at_us, settled_at=at_us - 1_000_000))
    known = {row.key for row in self.tables.rows(tables.RUN) if row.job_id in seen}
    rule = Part(lambda plan: msgspec.structs.replace(plan, runs=tuple(it for it in plan.runs if it.key not in known)))
    done = await self.transact(fire, list(seen), rule)
    for job_id, was in before.items():
        now = self.tables.get(tables.JOB, job_id)
        assert now is not None
        if was.next_fire_at is not None and now.next_fire_at is not None and was.next_fire_at > now.next_fire_at:
            self.tables.put(tables.JOB, was)
        runs = [row for row in self.tables.rows(tables.RUN) if row.job_id == job_id and row.cause == Cause.SLOT]
        newest = max((row.key for row in runs if PRUNED not in row.key), default=None)
        for row in runs:
            if row.key != newest and PRUNED not in row.key:
                self.tables.put(tables.RUN, row._replace(key=f"{row.key}{PRUNED}{row.id}"))
    return done


PRUNED = " pruned "


def reaps_by_the_clock_of_the_node(patch: pytest.MonkeyPatch) -> None:
    real = rescue_module._is_gone

    def is_over(self: Rescuer, node: Any, now: datetime, hold_s: float) -> bool:
        return self.clock.wall() > node.lease_until + timedelta(seconds=self.config.margin_s + hold_s)

    def trusting(*facts: Any, **_: Any) -> bool:
        return real(*facts, seen_gone=True)

    patch.setattr(Rescuer, "_is_over", is_over)
    patch.setattr(rescue_module, "_is_gone", trusting)


def counts_seats_before_it_takes_them(patch: pytest.MonkeyPatch) -> None:
    """What counts is what was seen at the last look, not what is there."""
    rebuild = Rounds.rebuild
    looked: dict[int, Any] = {}

    def stale(self: Rounds, ready: Any, seated: Any) -> None:
        rebuild(self, ready, looked.get(id(self), ()))
        looked[id(self)] = seated

    patch.setattr(Rounds, "rebuild", stale)


def checks_no_token(patch: pytest.MonkeyPatch) -> None:
    real = finish_module._is_current

    def lax(end: Any, row: Any) -> bool:
        return real(msgspec.structs.replace(end, attempt=row.attempt, round=None), row)

    patch.setattr(finish_module, "_is_current", lax)
    patch.setattr(finish_module, "_write_attempts", lambda tx, ends: None)  # its key would be the last net


def has_no_dead_mans_switch(patch: pytest.MonkeyPatch) -> None:
    renew = SimRunner.renew
    patch.setattr(SimRunner, "renew", lambda self, until_s: renew(self, until_s + 3600))


def counts_the_lease_from_the_reply(patch: pytest.MonkeyPatch) -> None:
    once = Member.once

    async def late(self: Member) -> float:
        runner, self.runner = self.runner, None
        try:
            rest_s = await once(self)
        finally:
            self.runner = runner
        if runner is not None and self.identity.id is not None:
            runner.renew(self.clock.boottime() + self.config.lease_s - self.config.margin_s)
        return rest_s

    patch.setattr(Member, "once", late)


def acquires_at_the_limit(patch: pytest.MonkeyPatch) -> None:
    wanted = claim._wanted
    patch.setattr(claim, "_wanted", lambda facts, order, held: wanted(facts, order, held - 1))


def has_a_limit_that_survives_no_crash(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claim, "limit", lambda jobs, schedulers, faults: 1 + jobs // max(schedulers, 1))


def sweeps_only_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClaimPlacer, "_listen", lambda self: None)
    patch.setattr(ClaimPlacer, "_rest_s", lambda self, facts, won: 3600.0)


def goes_on_by_an_old_plan(patch: pytest.MonkeyPatch) -> None:
    adopt = ScopePlacer._adopt

    def once(self: ScopePlacer, new: Any) -> None:
        if self._plan is None:
            adopt(self, new)

    patch.setattr(ScopePlacer, "_adopt", once)
    patch.setattr(ScopePlacer, "lose", lambda self: None)


def beats_by_its_own_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(beat, "StoreTime", lambda clock, read: StoreTime(clock, clock.wall()))


def hands_over_to_nobody(patch: pytest.MonkeyPatch) -> None:
    async def silent(self: Handovers, jobs: Any) -> bool:
        return True

    patch.setattr(Handovers, "announce", silent)


def plans_anew_only_when_the_number_of_schedulers_changes(patch: pytest.MonkeyPatch) -> None:
    """A4.7"""
    needs_plan = scope.needs_plan

    def counted(last: Any, peers: Any, jobs: Any, strategy: Any) -> bool:
        if last is None or len(peers) != len(last.names):
            return needs_plan(last, peers, jobs, strategy)
        return False

    patch.setattr(scope, "needs_plan", counted)


def knows_no_offline_list(patch: pytest.MonkeyPatch) -> None:
    async def nobody(self: ClusterView) -> frozenset[str]:
        return frozenset()

    patch.setattr(ClusterView, "drained", nobody)


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
    introduce = SessionKeeper._introduce

    async def early(self: SessionKeeper, bare: Peer) -> bool:
        self.session = self.coordinator.session
        return await introduce(self, bare)

    patch.setattr(SessionKeeper, "_introduce", early)


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
