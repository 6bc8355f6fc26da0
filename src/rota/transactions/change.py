"""Change: what a person does to jobs: apply, pause, resume, delete, start."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model import tables
from rota.model.job import Job, JobName
from rota.model.plan import Committed, Rule
from rota.model.records import job_of, run_of
from rota.model.run import Run, RunKey
from rota.model.states import Cause
from rota.transactions.decide import Ground, decide, held_ids, with_keys
from rota.transactions.plan import PLACED, write_plan
from rota.transactions.tx import Transactor, Tx


def change(
    tx: Tx,
    names: Sequence[JobName],
    rule: Rule,
    *,
    known: Sequence[tuple[JobName, str]] = (),
    cause: Cause = Cause.MANUAL,
    waiting: bool = False,
) -> Committed:
    """Lock the jobs of these names that exist (deleted ones too), waiting for them; decide; write.

    `known` names runs of one cause (job and key) that the facts shall show if they exist already; an empty plan brings
    them back. With `waiting`, the overlap keys under which runs of these jobs wait are locked and shown too. Raises
    Unreadable: who names a job must be told.
    """
    wanted = {row.id for row in tx.rows.find(tables.JOB, "name", sorted(set(names)))}  # ids never change
    read = [job_of(row) for row in tx.lock_jobs(wanted)]
    jobs = [job for job in read if job.id in wanted]
    others = tuple(job for job in read if job.id not in wanted)
    # Nobody can begin to wait for these jobs meanwhile: that needs their locks.
    keys = tx.ask.waiting_keys([job.id for job in jobs]) if waiting and jobs else ()
    ground = with_keys(tx, Ground(jobs, [], [], others=others), rule, keys)
    found = _known_runs(tx, jobs, known, cause)
    decision = decide(tx, ground, rule, known=found, held=held_ids(tx, jobs), counts_all=True)
    written = write_plan(tx, decision)
    runs = tuple(written or decision.facts.known.values())
    return Committed(now=decision.facts.now, plan=decision.plan, runs=runs)


def _known_runs(tx: Tx, jobs: Sequence[Job], known: Sequence[tuple[JobName, str]], cause: Cause) -> dict[RunKey, Run]:
    """Those of the named runs that exist."""
    ids = {job.definition.full_name: job.id for job in jobs}
    given = [(ids[name], str(cause), key) for name, key in known if name in ids]
    return {run.unique: run for run in map(run_of, tx.rows.find(tables.RUN, "key", given))}


async def place_again(store: Transactor) -> int:
    """Put right which jobs want an owner, if any is listed wrongly; says how many were."""
    return await store.transact(_place) if await store.look(misplaced) else 0


def _place(tx: Tx) -> int:
    """Put right which jobs want an owner; says how many were wrong. Who changes jobs waits for the counter, and then
    goes on from what is written here."""
    tx.reserve(PLACED, 1)
    missing, extra = _misplaced(tx)
    tx.rows.insert(tables.PLACED, [(job_id,) for job_id in sorted(missing)])
    tx.rows.remove(tables.PLACED, sorted(extra))
    return len(missing) + len(extra)


def misplaced(tx: Tx) -> int:
    """How many jobs are listed as wanting an owner, or not, wrongly."""
    return sum(map(len, _misplaced(tx)))


def _misplaced(tx: Tx) -> tuple[set[int], set[int]]:
    """The jobs that want an owner and are not listed, and those that are and do not. Whether one that this release
    cannot read fires, others know."""
    rows = [row for row in tx.rows.all(tables.JOB) if row.state == "enabled"]
    jobs = tx.readings.all(rows, job_of)
    unread = {row.id for row in rows} - {job.id for job in jobs}
    wanted = {job.id for job in jobs if job.is_placed}
    listed = {row.job_id for row in tx.rows.all(tables.PLACED)}
    return wanted - listed, listed - wanted - unread
