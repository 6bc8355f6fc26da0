"""The tables. Instants are microseconds since the epoch in UTC, so that every database keeps them alike.

Migrations build these tables; a test compares both.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text, UniqueConstraint
from sqlalchemy.dialects.mysql import MEDIUMTEXT

metadata = MetaData()

_LONG_TEXT = Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb")
_NAME = String(100)
_STATE = String(16)
_KEY = String(255)


def _table(name: str, *parts: Any) -> Table:
    return Table(name, metadata, *parts, mysql_engine="InnoDB", mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin")


meta = _table(
    "rota_meta",
    Column("name", _NAME, primary_key=True),
    Column("value", String(255), nullable=False),
)

counter = _table(
    "rota_counter",
    Column("name", _NAME, primary_key=True),
    Column("next", BigInteger, nullable=False),
)

job = _table(
    "rota_job",
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("tenant", _NAME, nullable=False),
    Column("project", _NAME, nullable=False),
    Column("name", _NAME, nullable=False),
    Column("definition", _LONG_TEXT, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("version", Integer, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("state", _STATE, nullable=False),
    Column("next_slot_at", BigInteger),
    Column("next_fire_at", BigInteger),
    Column("settled_at", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    Column("source", String(250)),
    UniqueConstraint("tenant", "project", "name", name="rota_job_name"),
    Index("rota_job_next_fire", "next_fire_at"),
)

job_version = _table(
    "rota_job_version",
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),
    Column("definition", _LONG_TEXT, nullable=False),
    Column("applied_at", BigInteger, nullable=False),
    Column("actor", String(255), nullable=False),
)

overlap = _table(
    "rota_overlap",
    Column("key", _KEY, primary_key=True),
)

run = _table(
    "rota_run",
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("job_id", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("cause", _STATE, nullable=False),
    Column("key", _KEY, nullable=False),
    Column("overlap_key", _KEY, nullable=False),
    Column("state", _STATE, nullable=False),
    Column("reason", _STATE),
    Column("slot_at", BigInteger),
    Column("last_slot_at", BigInteger),
    Column("slots", Integer, nullable=False),
    Column("due_at", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("cancel_at", BigInteger),
    Column("params", _LONG_TEXT, nullable=False),
    Column("work", _LONG_TEXT),
    UniqueConstraint("job_id", "cause", "key", name="rota_run_key"),
    Index("rota_run_live", "overlap_key", "ended_at"),
    Index("rota_run_live_of_job", "job_id", "ended_at"),
    Index("rota_run_by_job", "job_id", "created_at"),
    Index("rota_run_by_age", "created_at"),
)

item = _table(
    "rota_item",
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("run_id", BigInteger, nullable=False),
    Column("task", _NAME, nullable=False),
    Column("index", Integer, nullable=False),
    Column("state", _STATE, nullable=False),
    Column("not_before_at", BigInteger, nullable=False),
    Column("start_by_at", BigInteger, nullable=False),
    Column("tenant", _NAME),
    Column("number", _KEY),
    Column("info", _LONG_TEXT),
    Column("ended_at", BigInteger),
    Column("result", _LONG_TEXT),
    Column("message", _LONG_TEXT),
    UniqueConstraint("run_id", "task", "index", name="rota_item_place"),
    Index("rota_item_number", "tenant", "number", unique=True),
)

queue = _table(
    "rota_queue",
    Column("item_id", BigInteger, primary_key=True, autoincrement=False),
    Column("run_id", BigInteger, nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Column("lane_id", BigInteger, nullable=False),
    Column("state", _STATE, nullable=False),
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
"""The live items. No index holds a column that changes, so that PostgreSQL updates rows in place."""

lane = _table(
    "rota_lane",
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),
    Column("spec", _LONG_TEXT, nullable=False),
    Column("used_at", BigInteger),
    UniqueConstraint("digest", name="rota_lane_digest"),
)

limit = _table(
    "rota_limit",
    Column("name", _KEY, primary_key=True),
    Column("cap", BigInteger),
    Column("weight", Integer, nullable=False),
    Column("rate_max", Integer),
    Column("rate_us", BigInteger),
    Column("recent", _LONG_TEXT, nullable=False),
    Column("is_set", Integer, nullable=False),
)
"""`is_set` is 0 for rows that only remember the starts of a job with a rate."""

dispatch = _table(
    "rota_dispatch",
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("holder", BigInteger),
    Column("epoch", BigInteger, nullable=False),
    Column("round", BigInteger, nullable=False),
    Column("changes", BigInteger, nullable=False),
    Column("next_at", BigInteger),
)
"""One row: the lock under which rounds are made."""

arrival = _table(
    "rota_arrival",
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("kind", _STATE, nullable=False),
    Column("data", _LONG_TEXT, nullable=False),
)

grant = _table(
    "rota_grant",
    Column("node_id", BigInteger, primary_key=True, autoincrement=False),
    Column("round", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("holder", BigInteger, nullable=False),
    Column("data", _LONG_TEXT, nullable=False),
    Index("rota_grant_by_age", "at"),
)

attempt = _table(
    "rota_attempt",
    Column("item_id", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("node", _NAME, nullable=False),
    Column("round", BigInteger),
    Column("assigned_at", BigInteger),
    Column("started_at", BigInteger),
    Column("ended_at", BigInteger, nullable=False),
    Column("outcome", _STATE, nullable=False),
    Column("code", Integer),
    Column("message", _LONG_TEXT),
    Column("log_bytes", BigInteger, nullable=False),
)

node = _table(
    "rota_node",
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("name", _NAME, nullable=False),
    Column("state", _STATE, nullable=False),
    Column("joined", _LONG_TEXT, nullable=False),
    Column("joined_at", BigInteger, nullable=False),
    Column("left_at", BigInteger),
    Index("rota_node_name", "name"),
)
"""One row for every incarnation."""

lease = _table(
    "rota_lease",
    Column("node_id", BigInteger, primary_key=True, autoincrement=False),
    Column("until_at", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("busy", BigInteger, nullable=False),
    Column("fenced", Integer, nullable=False),
)
"""The only row that a renewal touches, and nothing else locks it while the node is believed alive. `busy` in hundredths
of a percent; a lease that is `fenced` is not renewed any more."""

drained = _table(
    "rota_drained",
    Column("name", _NAME, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("roles", String(64)),
    Column("keep", Integer),
    Column("deadline_at", BigInteger),
)
"""The offline list. `roles` with commas between; none: all."""

placed = _table(
    "rota_placed",
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
)
"""The jobs that want an owner: enabled, with a trigger."""

held = _table(
    "rota_held",
    Column("tenant", _NAME, primary_key=True),
    Column("project", _NAME, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("actor", String(255), nullable=False),
)
"""Scopes of which nothing fires. No project: the whole tenant; no tenant either: everything."""

number = _table(
    "rota_number",
    Column("group_name", _NAME, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", _KEY, nullable=False),
)
"""Which node of a group has which number, for as long as the node is remembered."""

event = _table(
    "rota_event",
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("actor", String(255), nullable=False),
    Column("job_id", BigInteger),
    Column("run_id", BigInteger),
    Column("item_id", BigInteger),
    Column("data", _LONG_TEXT, nullable=False),
    Index("rota_event_by_run", "run_id"),
    Index("rota_event_by_job", "job_id", "at"),
)

session = _table(
    "rota_session",
    Column("id", _NAME, primary_key=True),
    Column("until_at", BigInteger, nullable=False),
)
"""Of the coordinator's clients. A renewal touches this row only; who ends a session holds the counter of entries."""

entry = _table(
    "rota_entry",
    Column("key", String(403), primary_key=True),
    Column("folder", String(302), nullable=False),
    Column("value", _LONG_TEXT, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("session_id", _NAME),
    Column("fence", BigInteger, nullable=False),
    Index("rota_entry_by_folder", "folder"),
    Index("rota_entry_by_session", "session_id"),
)
"""A claim has a session; all others last. The lengths are those of four words of a hundred, and of three."""

alarm_rule = _table(
    "rota_alarm_rule",
    Column("name", _NAME, primary_key=True),
    Column("data", _LONG_TEXT, nullable=False),
)

alarm = _table(
    "rota_alarm",
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("key", _KEY, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("data", _LONG_TEXT, nullable=False),
    Column("is_open", Integer, nullable=False),
    Column("sorted_at", BigInteger),
    UniqueConstraint("key", name="rota_alarm_key"),
    Index("rota_alarm_by_sorting", "sorted_at"),
    Index("rota_alarm_by_age", "at"),
    Index("rota_alarm_by_level", "is_open"),
)
"""`is_open`: a level that has not ended. `sorted_at`: when the rules were asked who shall be told."""

delivery = _table(
    "rota_delivery",
    Column("rule", _NAME, primary_key=True),
    Column("alarm_id", BigInteger, primary_key=True, autoincrement=False),
    Column("tries", Integer, nullable=False),
    Column("not_before_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("arrived", Integer, nullable=False),
    Column("answer", _LONG_TEXT, nullable=False),
    Index("rota_delivery_by_alarm", "alarm_id"),
    Index("rota_delivery_by_end", "ended_at"),
)
"""An alarm on its way to whoever a rule names."""
