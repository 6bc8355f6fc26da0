"""Lanes: when each was last asked for, so that those that nobody uses can be forgotten. Code of 0008 leaves it out."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column

from rota.storage.sql.migrations.steps import add_column

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    add_column("rota_lane", Column("used_at", BigInteger))
