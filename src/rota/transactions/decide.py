"""What all transactions that decide about jobs and runs share: lock, read the facts, ask the rule.

    lock jobs in id order ──> lock overlap keys in order ──> lock runs ──> read clock and live runs   (locked read)
                                                                              │ Facts
                                                                       rule.decide(facts)             (pure, core/)
                                                                              │ Plan
                                                                       write_plan                     (fenced write)

Locking and counting are separate statements, because a statement's snapshot can be older than the lock it waited for.
All facts are read before anything is written: so everything that follows is written in one go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from rota.core.overlap import looks_at_runs
from rota.errors import Unreadable
from rota.model import tables
from rota.model.cluster import Hold
from rota.model.job import Definition, Job
from rota.model.plan import Crowd, Facts, LiveRun, Plan, Rule
from rota.model.records import definition_of, from_us, hold_of, item_of, job_of, run_of, to_us
from rota.model.run import Item, Run, RunKey
from rota.model.states import RunState
from rota.model.tables import RunRow
from rota.transactions.record import STREAK, streak, wanting_streaks
from rota.transactions.rows import Conflict, FiredWith, LiveItem
from rota.transactions.tx import Tx


class Ground(NamedTuple):
    """What is locked: jobs that this release can read, those that it cannot (ids), overlap keys, and runs."""

    jobs: list[Job]
    unread: list[int]
    keys: list[str]
    rows: Sequence[RunRow] = ()
    runs: tuple[Run, ...] = ()
    """Those of the runs that this release can read."""
    others: tuple[Job, ...] = ()
    """Jobs beside those asked for, whose runs the rule may end and whose triggers follow ends."""


class ReleasedRuns(NamedTuple):
    """What must be known of runs that have waited and begin now."""

    fired: Mapping[int, tuple[FiredWith, Definition]]
    items: Sequence[Item]


class Decision(NamedTuple):
    """What a rule decided, on which facts; and what else was read on the way."""

    facts: Facts
    plan: Plan
    released: ReleasedRuns


def lock_runs(tx: Tx, job_ids: Iterable[int], run_ids: Sequence[int], rule: Rule) -> Ground:
    """Lock jobs, the overlap keys of these runs, and the runs. A run's job and key never change, so they are looked up
    before they are locked."""
    keys = {row.overlap_key for row in tx.rows.read(tables.RUN, run_ids) if row.job_id}
    ground = with_keys(tx, lock_jobs(tx, job_ids), rule, keys)
    rows = tx.lock(tables.RUN, run_ids)
    return ground._replace(rows=rows, runs=tuple(tx.readings.all(rows, run_of)))


def lock_jobs(tx: Tx, job_ids: Iterable[int], *, skip: bool = False) -> Ground:
    """Lock jobs. Those that this release cannot read are left out, and named."""
    asked = set(job_ids)
    rows = tx.lock_jobs(asked, skip=skip)
    read = tx.readings.all(rows, job_of)
    jobs = [job for job in read if job.id in asked]
    others = tuple(job for job in read if job.id not in asked)
    unread = sorted(asked & {row.id for row in rows} - {job.id for job in jobs})
    return Ground(jobs, unread, [], others=others)


def with_keys(tx: Tx, ground: Ground, rule: Rule, keys: Iterable[str] = ()) -> Ground:
    """Lock the overlap keys that the rule looks at, and these."""
    wanted = sorted({*rule.keys(ground.jobs), *keys})
    lock_keys(tx, wanted)
    return ground._replace(keys=wanted)


def lock_keys(tx: Tx, keys: Sequence[str]) -> None:
    """Lock the rows of explicit overlap keys; a job's own key is its job row, which is locked already.

    Rows are made when a key is first seen, by a second try, before any of them is locked. To insert what is there would
    take a weaker lock first, and two that then want the stronger one would wait for each other.
    """
    explicit = [key for key in keys if not key.startswith("job:")]
    if not explicit:
        return
    if tx.attempt > 1:
        known = {row.key for row in tx.rows.read(tables.OVERLAP, explicit)}
        tx.rows.insert(tables.OVERLAP, [(key,) for key in explicit if key not in known], missing=True)
    if len(tx.lock(tables.OVERLAP, explicit)) < len(explicit):
        raise Conflict("an overlap key is new, or was forgotten meanwhile")


def held_ids(tx: Tx, jobs: Sequence[Job]) -> frozenset[int]:
    """The jobs of which nothing may fire now. Read after they were locked: who pauses them waits for the locks."""
    holds: list[Hold] = [hold_of(row) for row in tx.rows.all(tables.HELD)] if jobs else []
    return frozenset(job.id for job in jobs if any(it.covers(job.definition.full_name) for it in holds))


def decide(
    tx: Tx,
    ground: Ground,
    rule: Rule,
    *,
    items: Sequence[LiveItem] = (),
    runs: Sequence[Run] = (),
    known: Mapping[RunKey, Run] = {},
    held: frozenset[int] = frozenset(),
    counts_all: bool = False,
) -> Decision:
    """Read the facts, and ask the rule. `runs` are those whose items changed, `items` are theirs as they are from now
    on; without those that this release cannot read."""
    jobs = ground.jobs
    now_us, crowds = _crowds(tx, ground)
    tx.now_us = now_us
    whole, read = _whole(tx, [run.id for run in runs], items)
    counted = [job.id for job in (*jobs, *ground.others) if counts_all or job.definition.follows_ends]
    ended = tuple(run for run in runs if run.id in whole)
    shown = tuple(item for item in read if item.run_id in whole)
    facts = Facts(
        now=from_us(now_us),
        jobs=tuple(jobs),
        crowds=crowds,
        others=ground.others,
        live=tx.ask.live_counts(counted) if counted else {},
        runs=ended,
        items=shown,
        streaks={job.id: _streak(tx, job) for job in wanting_streaks(jobs, ended, shown)},
        known=known,
        held=held,
    )
    return _planned(tx, rule, facts)


def _planned(tx: Tx, rule: Rule, facts: Facts) -> Decision:
    """What the rule decides. A run whose end would start one that this release cannot read stays open as well: if it
    ended, nobody would be left to start the other."""
    plan = rule.decide(facts)
    started = [move.run_id for move in plan.moves if move.now is RunState.RUNNING]
    if not started:
        return Decision(facts, plan, ReleasedRuns({}, ()))
    fired = {row.id: (row, made) for row, made in tx.readings.pairs(tx.ask.fired_with(started), definition_of)}
    whole, items = _whole(tx, started, tx.ask.live_items(started))
    unread = set(started) - (fired.keys() & whole)
    if unread:
        shut = {key for key, crowd in facts.crowds.items() if any(run.id in unread for run in crowd.waiting)}
        runs = tuple(run for run in facts.runs if run.overlap_key not in shut)
        kept = {run.id for run in runs}
        less = tuple(item for item in facts.items if item.run_id in kept)
        plan = rule.decide(msgspec.structs.replace(facts, runs=runs, items=less))
    return Decision(facts, plan, ReleasedRuns(fired, items))


def _whole(tx: Tx, run_ids: Sequence[int], items: Sequence[LiveItem]) -> tuple[set[int], list[Item]]:
    """The runs of which every item can be read, and the items that can."""
    whole, read = set(run_ids), []
    for row, live in items:
        try:
            read.append(item_of((*row, live)))
        except Unreadable as fault:
            tx.readings.note(fault)
            whole.discard(row.run_id)
    return whole, read


def _crowds(tx: Tx, ground: Ground) -> tuple[int, dict[str, Crowd]]:
    """The clock, and who is live under the keys. The live runs are named where the rule may act on them. A run in a
    state that only a newer release knows counts as running."""
    if not ground.keys:
        tx.read_clock()
        return tx.now_us, {}
    now_us, counts = tx.ask.crowds(ground.keys)
    running = dict.fromkeys(ground.keys, 0)
    for it in counts:
        running[it.key] += 0 if it.state == RunState.WAITING else it.size
    waits = any(it.state == RunState.WAITING for it in counts)
    if not counts or not (waits or looks_at_runs(ground.jobs)):
        return now_us, {key: Crowd(running=count) for key, count in running.items()}
    named: dict[str, list[LiveRun]] = {key: [] for key in ground.keys}
    for run in tx.ask.named_runs(ground.keys):
        state = RunState.WAITING if run.state == RunState.WAITING else RunState.RUNNING
        named[run.key].append(LiveRun(id=run.id, job_id=run.job_id, state=state, started=run.started))
    if looks_at_runs(ground.jobs):
        _check_others(tx, ground, {run.job_id for runs in named.values() for run in runs})
    return now_us, {
        key: Crowd(
            running=count,
            runs=tuple(run for run in named[key] if run.state is RunState.RUNNING),
            waiting=tuple(run for run in named[key] if run.state is RunState.WAITING),
        )
        for key, count in running.items()
    }


def _check_others(tx: Tx, ground: Ground, live: set[int]) -> None:
    """The other jobs whose runs may be replaced, and that would then have to be armed again, must be locked too."""
    strangers = live - {job.id for job in (*ground.jobs, *ground.others)} - set(ground.unread)
    jobs = tx.readings.all(tx.rows.read(tables.JOB, sorted(strangers)), job_of)
    follow = [job.id for job in jobs if job.definition.follows_ends]
    if follow:
        raise Conflict("runs of further jobs may be replaced", jobs=follow)


def _streak(tx: Tx, job: Job) -> int:
    """How many runs of a job have failed in a row. Nobody can end one meanwhile: that needs the job's lock."""
    assert job.definition.pause_after is not None
    return streak(tx.ask.last_ends(job.id, to_us(job.changed_at), STREAK, job.definition.pause_after))


def understood(ground: Ground, run_ids: Iterable[int]) -> list[Run]:
    """The runs for which this release can decide what follows. The others stay open until a node settles them that can
    read them and their jobs (`settle_runs`)."""
    job_ids, wanted = {job.id for job in ground.jobs}, set(run_ids)
    return [run for run in ground.runs if run.id in wanted and run.job_id in job_ids]


def with_ends(tx: Tx, runs: Sequence[Run], states: Mapping[int, str]) -> list[LiveItem]:
    """The items of runs as they are when what is about to be written is: those named here are in these states, out of
    the queue unless they are ready."""
    if not runs:
        return []
    return [
        it._replace(live=None, item=it.item._replace(state=state)) if (state := states.get(it.item.id)) else it
        for it in tx.ask.live_items([run.id for run in runs])
    ]
