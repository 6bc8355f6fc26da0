"""Placement: the set of jobs that want an owner, and roles on the offline list. Code of 0003 does not miss them."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, String

from rota.storage.sql.migrations.steps import add_column, add_row, create_table

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    create_table("rota_placed", Column("job_id", BigInteger, primary_key=True, autoincrement=False))
    add_column("rota_drained", Column("roles", String(64)))
    add_column("rota_drained", Column("keep", Integer))
    add_column("rota_drained", Column("deadline_at", BigInteger))
    add_row("rota_counter", "name", "placed", next=1)
    op.execute(_PLACED)


_PLACED = """
    INSERT INTO rota_placed (job_id)
    SELECT id FROM rota_job
    WHERE state = 'enabled' AND definition LIKE '%"schedule":{%' AND definition NOT LIKE '%"rule":{"type":"manual"}%'
    AND id NOT IN (SELECT job_id FROM rota_placed)
"""
