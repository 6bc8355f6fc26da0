"""Dispatch: the queue of live items, lanes, limits, rounds and their grants, attempts, nodes and their leases.

Items that were ready before get their place in the queue. Code of 0001 would make items that nobody ever dispatches,
so it must not start any more.
"""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, String, Text, UniqueConstraint
from sqlalchemy.dialects.mysql import MEDIUMTEXT

from rota.storage.sql.migrations.adopt import adopt
from rota.storage.sql.migrations.steps import add_column, add_row, create_index, create_table, on_postgresql, set_row

revision = "0002"
down_revision = "0001"

_LONG_TEXT = Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    _widen()
    _queue()
    _rounds()
    _nodes()
    for name in ("lane", "node"):
        add_row("rota_counter", "name", name, next=1)
    add_row("rota_dispatch", "id", 1, epoch=0, round=0, changes=0)
    add_row("rota_meta", "name", "generation", value="1")
    set_row("rota_meta", "name", "readable_from", value=revision)
    on_postgresql(*_STORAGE)
    adopt(op.get_bind())
    set_row("rota_dispatch", "id", 1, holder=None)  # whoever makes the next round reads the queue anew


def _widen() -> None:
    add_column("rota_run", Column("work", _LONG_TEXT))
    for column in (
        Column("tenant", String(100)),
        Column("number", String(255)),
        Column("info", _LONG_TEXT),
        Column("ended_at", BigInteger),
        Column("result", _LONG_TEXT),
        Column("message", _LONG_TEXT),
    ):
        add_column("rota_item", column)
    create_index("rota_item_number", "rota_item", ["tenant", "number"], unique=True)


def _queue() -> None:
    create_table(
        "rota_queue",
        Column("item_id", BigInteger, primary_key=True, autoincrement=False),
        Column("run_id", BigInteger, nullable=False),
        Column("job_id", BigInteger, nullable=False),
        Column("lane_id", BigInteger, nullable=False),
        Column("state", String(16), nullable=False),
        Column("start_by_at", BigInteger, nullable=False),
        Column("not_before_at", BigInteger, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("failures", Integer, nullable=False),
        Column("losses", Integer, nullable=False),
        Column("node_id", BigInteger),
        Column("avoid_id", BigInteger),
        Column("round", BigInteger),
        Column("assigned_at", BigInteger),
        Column("started_at", BigInteger),
        Column("expires_at", BigInteger),
        Column("hold_us", BigInteger, nullable=False),
        Column("cancel_at", BigInteger),
    )
    create_table(
        "rota_lane",
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("digest", String(64), nullable=False),
        Column("spec", _LONG_TEXT, nullable=False),
        UniqueConstraint("digest", name="rota_lane_digest"),
    )
    create_table(
        "rota_limit",
        Column("name", String(255), primary_key=True),
        Column("cap", BigInteger),
        Column("weight", Integer, nullable=False),
        Column("rate_max", Integer),
        Column("rate_us", BigInteger),
        Column("recent", _LONG_TEXT, nullable=False),
        Column("is_set", Integer, nullable=False),
    )
    create_table(
        "rota_attempt",
        Column("item_id", BigInteger, primary_key=True, autoincrement=False),
        Column("attempt", Integer, primary_key=True, autoincrement=False),
        Column("node", String(100), nullable=False),
        Column("round", BigInteger),
        Column("assigned_at", BigInteger),
        Column("started_at", BigInteger),
        Column("ended_at", BigInteger, nullable=False),
        Column("outcome", String(16), nullable=False),
        Column("code", Integer),
        Column("message", _LONG_TEXT),
        Column("log_bytes", BigInteger, nullable=False),
    )


def _rounds() -> None:
    create_table(
        "rota_dispatch",
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("holder", BigInteger),
        Column("epoch", BigInteger, nullable=False),
        Column("round", BigInteger, nullable=False),
        Column("changes", BigInteger, nullable=False),
        Column("next_at", BigInteger),
    )
    create_table(
        "rota_arrival",
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("at", BigInteger, nullable=False),
        Column("kind", String(16), nullable=False),
        Column("data", _LONG_TEXT, nullable=False),
    )
    create_table(
        "rota_grant",
        Column("node_id", BigInteger, primary_key=True, autoincrement=False),
        Column("round", BigInteger, primary_key=True, autoincrement=False),
        Column("at", BigInteger, nullable=False),
        Column("holder", BigInteger, nullable=False),
        Column("data", _LONG_TEXT, nullable=False),
    )
    create_index("rota_grant_by_age", "rota_grant", ["at"])


def _nodes() -> None:
    create_table(
        "rota_node",
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("name", String(100), nullable=False),
        Column("state", String(16), nullable=False),
        Column("joined", _LONG_TEXT, nullable=False),
        Column("joined_at", BigInteger, nullable=False),
        Column("left_at", BigInteger),
    )
    create_index("rota_node_name", "rota_node", ["name"])
    create_table(
        "rota_lease",
        Column("node_id", BigInteger, primary_key=True, autoincrement=False),
        Column("until_at", BigInteger, nullable=False),
        Column("beat", BigInteger, nullable=False),
        Column("busy", BigInteger, nullable=False),
        Column("fenced", Integer, nullable=False),
    )
    create_table(
        "rota_drained",
        Column("name", String(100), primary_key=True),
        Column("at", BigInteger, nullable=False),
    )


_STORAGE = (
    "ALTER TABLE rota_queue SET (fillfactor = 50)",
    "ALTER TABLE rota_item SET (fillfactor = 45)",
    *(
        f"ALTER TABLE {name} SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500)"
        for name in ("rota_queue", "rota_arrival", "rota_lease", "rota_dispatch")
    ),
    # a batch of records is short-lived or rarely read: compressing it would cost more than it saves
    "ALTER TABLE rota_arrival ALTER COLUMN data SET STORAGE EXTERNAL",
    "ALTER TABLE rota_grant ALTER COLUMN data SET STORAGE EXTERNAL",
)
