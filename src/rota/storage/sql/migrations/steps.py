"""Steps of migrations that may be repeated: some databases do not roll back a schema change that was cut off."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import Column, UniqueConstraint, column, inspect, select, table, update


def create_table(name: str, *parts: Column[Any] | UniqueConstraint) -> None:
    """Create a table unless it is there."""
    if not inspect(op.get_bind()).has_table(name):
        op.create_table(name, *parts, mysql_engine="InnoDB", mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin")


def add_column(table_name: str, added: Column[Any]) -> None:
    """Add a column unless it is there."""
    if added.name not in {it["name"] for it in inspect(op.get_bind()).get_columns(table_name)}:
        op.add_column(table_name, added)


def create_index(name: str, table_name: str, columns: list[str], *, unique: bool = False) -> None:
    """Create an index unless it is there."""
    if name not in {index["name"] for index in inspect(op.get_bind()).get_indexes(table_name)}:
        op.create_index(name, table_name, columns, unique=unique)


def on_postgresql(*statements: str) -> None:
    """Run statements that mean something to PostgreSQL only."""
    if op.get_bind().dialect.name == "postgresql":
        for statement in statements:
            op.execute(statement)


def add_row(table_name: str, key: str, value: object, /, **fields: object) -> None:
    """Add a row unless there is one of its key."""
    rows = table(table_name, column(key), *(column(name) for name in fields))
    bind = op.get_bind()
    if bind.execute(select(rows.c[key]).where(rows.c[key] == value)).first() is None:
        bind.execute(rows.insert().values({key: value, **fields}))


def set_row(table_name: str, key: str, value: object, /, **fields: object) -> None:
    """Set fields of a row that is there."""
    rows = table(table_name, column(key), *(column(name) for name in fields))
    op.get_bind().execute(update(rows).where(rows.c[key] == value).values(fields))
