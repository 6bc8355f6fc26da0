"""Alarms: the rules, what happened, and what is on its way. Code of 0005 does not miss them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, String, Text, UniqueConstraint
from sqlalchemy.dialects.mysql import MEDIUMTEXT

from rota.storage.sql.migrations.steps import create_index, create_table

revision = "0006"
down_revision = "0005"

_LONG_TEXT = Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    create_table(
        "rota_alarm_rule",
        Column("name", String(100), primary_key=True),
        Column("data", _LONG_TEXT, nullable=False),
    )
    create_table(
        "rota_alarm",
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("key", String(255), nullable=False),
        Column("at", BigInteger, nullable=False),
        Column("data", _LONG_TEXT, nullable=False),
        Column("is_open", Integer, nullable=False),
        Column("sorted_at", BigInteger),
        UniqueConstraint("key", name="rota_alarm_key"),
    )
    create_index("rota_alarm_by_sorting", "rota_alarm", ["sorted_at"])
    create_index("rota_alarm_by_age", "rota_alarm", ["at"])
    create_index("rota_alarm_by_level", "rota_alarm", ["is_open"])
    create_table(
        "rota_delivery",
        Column("rule", String(100), primary_key=True),
        Column("alarm_id", BigInteger, primary_key=True, autoincrement=False),
        Column("tries", Integer, nullable=False),
        Column("not_before_at", BigInteger, nullable=False),
        Column("ended_at", BigInteger),
        Column("arrived", Integer, nullable=False),
        Column("answer", _LONG_TEXT, nullable=False),
    )
    create_index("rota_delivery_by_alarm", "rota_delivery", ["alarm_id"])
    create_index("rota_delivery_by_end", "rota_delivery", ["ended_at"])
