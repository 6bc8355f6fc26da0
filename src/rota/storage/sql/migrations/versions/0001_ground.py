"""The ground: jobs, their versions, runs, items and history."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, String, Text, UniqueConstraint
from sqlalchemy.dialects.mysql import MEDIUMTEXT

from rota.storage.sql.migrations.steps import add_row, create_index, create_table

revision = "0001"
down_revision = None

_LONG_TEXT = Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    create_table(
        "rota_meta",
        Column("name", String(100), primary_key=True),
        Column("value", String(255), nullable=False),
    )
    create_table(
        "rota_counter",
        Column("name", String(100), primary_key=True),
        Column("next", BigInteger, nullable=False),
    )
    create_table(
        "rota_job",
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("tenant", String(100), nullable=False),
        Column("project", String(100), nullable=False),
        Column("name", String(100), nullable=False),
        Column("definition", _LONG_TEXT, nullable=False),
        Column("digest", String(64), nullable=False),
        Column("version", Integer, nullable=False),
        Column("revision", BigInteger, nullable=False),
        Column("state", String(16), nullable=False),
        Column("next_slot_at", BigInteger),
        Column("next_fire_at", BigInteger),
        Column("settled_at", BigInteger),
        Column("created_at", BigInteger, nullable=False),
        Column("changed_at", BigInteger, nullable=False),
        UniqueConstraint("tenant", "project", "name", name="rota_job_name"),
    )
    create_index("rota_job_next_fire", "rota_job", ["next_fire_at"])
    create_table(
        "rota_job_version",
        Column("job_id", BigInteger, primary_key=True, autoincrement=False),
        Column("version", Integer, primary_key=True, autoincrement=False),
        Column("digest", String(64), nullable=False),
        Column("definition", _LONG_TEXT, nullable=False),
        Column("applied_at", BigInteger, nullable=False),
        Column("actor", String(255), nullable=False),
    )
    create_table("rota_overlap", Column("key", String(255), primary_key=True))
    create_table(
        "rota_run",
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("job_id", BigInteger, nullable=False),
        Column("version", Integer, nullable=False),
        Column("cause", String(16), nullable=False),
        Column("key", String(255), nullable=False),
        Column("overlap_key", String(255), nullable=False),
        Column("state", String(16), nullable=False),
        Column("reason", String(16)),
        Column("slot_at", BigInteger),
        Column("last_slot_at", BigInteger),
        Column("slots", Integer, nullable=False),
        Column("due_at", BigInteger, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("ended_at", BigInteger),
        Column("cancel_at", BigInteger),
        Column("params", _LONG_TEXT, nullable=False),
        UniqueConstraint("job_id", "cause", "key", name="rota_run_key"),
    )
    create_index("rota_run_live", "rota_run", ["overlap_key", "ended_at"])
    create_index("rota_run_live_of_job", "rota_run", ["job_id", "ended_at"])
    create_index("rota_run_by_job", "rota_run", ["job_id", "created_at"])
    create_index("rota_run_by_age", "rota_run", ["created_at"])
    create_table(
        "rota_item",
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("run_id", BigInteger, nullable=False),
        Column("task", String(100), nullable=False),
        Column("index", Integer, nullable=False),
        Column("state", String(16), nullable=False),
        Column("not_before_at", BigInteger, nullable=False),
        Column("start_by_at", BigInteger, nullable=False),
        UniqueConstraint("run_id", "task", "index", name="rota_item_place"),
    )
    create_table(
        "rota_event",
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("at", BigInteger, nullable=False),
        Column("kind", String(64), nullable=False),
        Column("actor", String(255), nullable=False),
        Column("job_id", BigInteger),
        Column("run_id", BigInteger),
        Column("item_id", BigInteger),
        Column("data", _LONG_TEXT, nullable=False),
    )
    create_index("rota_event_by_run", "rota_event", ["run_id"])
    create_index("rota_event_by_job", "rota_event", ["job_id", "at"])
    for name in ("job", "run", "row"):
        add_row("rota_counter", "name", name, next=1)
    add_row("rota_meta", "name", "readable_from", value=revision)
