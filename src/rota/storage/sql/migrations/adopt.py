"""Give ready items of jobs that are not in the queue their place in it: those of a store that had no queue.

Only items of runs that run are ready; those of runs that wait follow when their run starts.
"""

from __future__ import annotations

from sqlalchemy import Connection, and_, func, insert, select, update

from rota.model.job import Definition, lane_of
from rota.model.states import ItemState, RunState
from rota.model.value import decode, digest, encode
from rota.model.work import Lane
from rota.storage.sql import schema


def adopt(conn: Connection) -> None:
    """May be repeated: what is in the queue is left alone."""
    i, r, v, q = schema.item.c, schema.run.c, schema.job_version.c, schema.queue.c
    query = (
        select(i.id, i.run_id, i.task, i.start_by_at, i.not_before_at, r.job_id, v.definition)
        .join(schema.run, r.id == i.run_id)
        .join(schema.job_version, and_(v.job_id == r.job_id, v.version == r.version))
        .outerjoin(schema.queue, q.item_id == i.id)
        .where(i.state == str(ItemState.READY), r.state == str(RunState.RUNNING), q.item_id.is_(None))
    )
    lanes: dict[Lane, int] = {}
    for row in conn.execute(query).all():
        definition = decode(row.definition, Definition)
        task = definition.task(row.task)
        lane = lane_of(row.job_id, definition, task)
        lane_id = lanes.setdefault(lane, lanes.get(lane) or _lane_id(conn, lane))
        place = {"start_by_at": row.start_by_at, "not_before_at": row.not_before_at}
        fresh = {"state": "ready", "attempt": 0, "failures": 0, "losses": 0, "hold_us": round(task.hold_s * 1_000_000)}
        whose = {"item_id": row.id, "run_id": row.run_id, "job_id": row.job_id, "lane_id": lane_id}
        conn.execute(insert(schema.queue).values(**whose, **place, **fresh))


def _lane_id(conn: Connection, lane: Lane) -> int:
    known: int | None = conn.scalar(select(schema.lane.c.id).where(schema.lane.c.digest == digest(lane)))
    if known is not None:
        return known
    lane_id = int(conn.scalar(select(func.coalesce(func.max(schema.lane.c.id), 0) + 1)) or 1)
    conn.execute(insert(schema.lane).values(id=lane_id, digest=digest(lane), spec=encode(lane)))
    conn.execute(update(schema.counter).where(schema.counter.c.name == "lane").values(next=lane_id + 1))
    return lane_id
