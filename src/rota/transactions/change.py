"""Change: what a person does to jobs: apply, pause, resume, delete, start; and hold: fire nothing of a scope.

    hold    write the scope ──commit──> wait for the locks of its jobs that are due: who fires them has read before
    fire    lock jobs ──> read the scopes ──> leave out what is held ──> decide, write, commit

So when both steps of `hold` are done, nothing of the scope fires any more, and firing waits for nobody.
"""

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


SLACK_US = 10_000_000
"""Jobs that are due so soon may be under a lock already."""


async def hold(store: Transactor, tenant: str = "", project: str = "") -> None:
    """Let nothing of a scope fire: of a project of a tenant, of a tenant, of all. It lasts; when this returns, nothing
    of it fires any more, whatever a node has read before."""
    await store.transact(write_hold, tenant, project)
    await store.transact(outwait_firing, tenant, project)


def write_hold(tx: Tx, tenant: str, project: str) -> None:
    """Write a scope of which nothing fires."""
    if not tx.rows.read(tables.HELD, [(tenant, project)]):
        tx.read_clock()
        tx.rows.insert(tables.HELD, [(tenant, project, tx.now_us, tx.actor)], missing=True)
        tx.record("cluster.paused", {"tenant": tenant, "project": project})


def outwait_firing(tx: Tx, tenant: str, project: str) -> None:
    """Wait for those who fire something of a scope and have not seen that it is held."""
    tx.read_clock()
    tx.lock(tables.JOB, tx.ask.due_jobs(tenant, project, tx.now_us + SLACK_US))


def unhold(tx: Tx, tenant: str = "", project: str = "") -> bool:
    """Fire again; says whether the scope was held. What fell due meanwhile follows the misfire policies of the jobs."""
    is_held = bool(tx.rows.read(tables.HELD, [(tenant, project)]))
    if is_held:
        tx.read_clock()
        tx.rows.remove(tables.HELD, [(tenant, project)], exact=True)
        tx.record("cluster.resumed", {"tenant": tenant, "project": project})
    return is_held
