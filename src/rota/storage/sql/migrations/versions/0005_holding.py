"""Holding: scopes of which nothing fires. Code of 0004 does not miss them, but does not heed them either."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, String

from rota.storage.sql.migrations.steps import create_table

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    create_table(
        "rota_held",
        Column("tenant", String(100), primary_key=True),
        Column("project", String(100), primary_key=True),
        Column("at", BigInteger, nullable=False),
        Column("actor", String(255), nullable=False),
    )
