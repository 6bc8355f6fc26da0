"""Bring a database to this release's schema, and refuse one that this release does not understand.

Migrations only add, so that nodes of the release before go on working beside new ones. `readable_from` names the
oldest schema whose code still understands the present one.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, select

from rota.errors import StoreRefused
from rota.storage.sql import schema

VERSION_TABLE = "rota_schema"
VERSIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009")
"""The migrations of this release, in order; a test compares them with the files."""


def migrate(conn: Connection) -> None:
    """Apply what is missing. The caller makes sure that nobody else does so at the same time."""
    present = _present(conn)
    if present is not None and present not in VERSIONS:
        check_schema(conn)
        return
    from alembic import command  # heavy, and needed only here
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = conn
    command.upgrade(config, VERSIONS[-1])


def is_current(conn: Connection) -> bool:
    """Whether there is nothing to apply."""
    return _present(conn) == VERSIONS[-1]


def check_schema(conn: Connection) -> None:
    """Raise if the schema is missing, older than this release, or newer than this release understands."""
    present, newest = _present(conn), VERSIONS[-1]
    if present == newest:
        return
    if present is None or present in VERSIONS:
        what = "has no tables of rota" if present is None else f"has schema {present}, this release needs {newest}"
        raise StoreRefused(f"the store {what}. Run: rota store migrate")
    m = schema.meta.c
    if conn.scalar(select(m.value).where(m.name == "readable_from")) not in VERSIONS:
        raise StoreRefused(
            f"the store has schema {present} of a newer release; this one knows up to {newest}. Upgrade rota here."
        )


def _present(conn: Connection) -> str | None:
    if not inspect(conn).has_table(VERSION_TABLE):
        return None
    found: str | None = conn.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()  # noqa: S608 - a constant
    return found
