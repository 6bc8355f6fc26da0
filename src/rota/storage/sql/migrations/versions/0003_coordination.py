"""Coordination: sessions and entries of the coordinator that comes with the store. Code of 0002 does not miss them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, String, Text
from sqlalchemy.dialects.mysql import MEDIUMTEXT

from rota.storage.sql.migrations.steps import add_row, create_index, create_table, on_postgresql

revision = "0003"
down_revision = "0002"

_LONG_TEXT = Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    create_table(
        "rota_session",
        Column("id", String(100), primary_key=True),
        Column("until_at", BigInteger, nullable=False),
    )
    create_table(
        "rota_entry",
        Column("key", String(403), primary_key=True),
        Column("folder", String(302), nullable=False),
        Column("value", _LONG_TEXT, nullable=False),
        Column("version", BigInteger, nullable=False),
        Column("session_id", String(100)),
        Column("fence", BigInteger, nullable=False),
    )
    create_index("rota_entry_by_folder", "rota_entry", ["folder"])
    create_index("rota_entry_by_session", "rota_entry", ["session_id"])
    add_row("rota_counter", "name", "entry", next=1)
    on_postgresql(*_STORAGE)


_STORAGE = tuple(
    f"ALTER TABLE {name} SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500)"
    for name in ("rota_session", "rota_entry")
)
