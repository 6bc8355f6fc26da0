"""Hold: fire nothing of a scope until told otherwise.

    hold    write the scope ──commit──> wait for the locks of its jobs that are due: who fires them has read before
    fire    lock jobs ──> read the scopes ──> leave out what is held ──> decide, write, commit

So when both steps of `hold` are done, nothing of the scope fires any more, and firing waits for nobody.
"""

from __future__ import annotations

from rota.model import tables
from rota.transactions.tx import Transactor, Tx

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
