"""Sources: who defines a job. Code of 0007 leaves the column alone; a job without one adopts the first."""

from __future__ import annotations

from sqlalchemy import Column, String

from rota.storage.sql.migrations.steps import add_column

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    add_column("rota_job", Column("source", String(250)))
