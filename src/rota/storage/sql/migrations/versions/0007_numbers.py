"""Numbers: which node of a group has which. Code of 0006 gives none, and does not miss them."""

from __future__ import annotations

from sqlalchemy import Column, Integer, String

from rota.storage.sql.migrations.steps import create_table

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    create_table(
        "rota_number",
        Column("group_name", String(100), primary_key=True),
        Column("number", Integer, primary_key=True, autoincrement=False),
        Column("name", String(255), nullable=False),
    )
