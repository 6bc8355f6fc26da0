"""Steps of migrations that may be repeated: some databases do not roll back a schema change that was cut off."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import Column, UniqueConstraint, column, inspect, select, table


def create_table(name: str, *parts: Column[Any] | UniqueConstraint) -> None:
    """Create a table unless it is there."""
    if not inspect(op.get_bind()).has_table(name):
        op.create_table(name, *parts, mysql_engine="InnoDB", mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin")


def create_index(name: str, table_name: str, columns: list[str]) -> None:
    """Create an index unless it is there."""
    if name not in {index["name"] for index in inspect(op.get_bind()).get_indexes(table_name)}:
        op.create_index(name, table_name, columns)


def add_row(table_name: str, name: str, field: str, value: object) -> None:
    """Add a named row unless it is there."""
    rows = table(table_name, column("name"), column(field))
    bind = op.get_bind()
    if bind.execute(select(rows).where(rows.c.name == name)).first() is None:
        bind.execute(rows.insert().values({"name": name, field: value}))
