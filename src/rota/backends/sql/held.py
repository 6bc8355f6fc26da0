"""Which jobs are held: read in a statement after their rows were locked, so that who pauses can wait for the locks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from rota.backends.sql import schema
from rota.backends.sql.rows import from_us
from rota.model.cluster import Hold
from rota.model.job import Job


def all_holds(conn: Connection) -> tuple[Hold, ...]:
    """The scopes of which nothing fires, widest first."""
    h = schema.held.c
    rows = conn.execute(select(schema.held).order_by(h.tenant, h.project))
    return tuple(Hold(tenant=it.tenant, project=it.project, held_at=from_us(it.at), actor=it.actor) for it in rows)


def held_ids(conn: Connection, jobs: Sequence[Job]) -> frozenset[int]:
    """Those of the jobs of which nothing may fire now."""
    holds = all_holds(conn) if jobs else ()
    return frozenset(job.id for job in jobs if any(it.covers(job.definition.full_name) for it in holds))


def unheld(conn: Connection, jobs: list[Job]) -> list[Job]:
    """Those that may."""
    held = held_ids(conn, jobs)
    return [job for job in jobs if job.id not in held] if held else jobs


def is_held() -> ColumnElement[bool]:
    """The same inside a query about jobs."""
    h, j = schema.held.c, schema.job.c
    return (
        select(h.at).where(h.tenant.in_(["", j.tenant]), h.project.in_(["", j.project])).correlate(schema.job).exists()
    )


def within(tenant: str, project: str) -> list[Any]:
    """The conditions for jobs of a scope."""
    j = schema.job.c
    return [*([j.tenant == tenant] if tenant else []), *([j.project == project] if project else [])]
