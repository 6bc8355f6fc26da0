"""Fire: record what due jobs owe."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.plan import Committed, Rule
from rota.transactions.decide import decide, held_ids, lock_jobs, with_keys
from rota.transactions.plan import write_plan
from rota.transactions.tx import Tx


def fire(tx: Tx, job_ids: Sequence[int], rule: Rule) -> Committed:
    """Lock those of the jobs that nobody else holds, and record what they owe. Jobs that another transaction holds are
    left out instead of being waited for: it is firing them."""
    ground = lock_jobs(tx, job_ids, skip=True)
    due = [job for job in ground.jobs if job.next_fire_at is not None]
    held = held_ids(tx, due)  # after the lock: `hold` commits first, and then waits for our locks
    ground = with_keys(tx, ground._replace(jobs=[job for job in due if job.id not in held]), rule)
    decision = decide(tx, ground, rule)
    runs = write_plan(tx, decision)
    return Committed(now=decision.facts.now, plan=decision.plan, runs=tuple(runs), unread=tuple(ground.unread))
