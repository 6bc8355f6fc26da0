"""Bring a database to this release's schema, and refuse one that this release does not understand.

Migrations only add, so that nodes of the release before go on working beside new ones. `readable_from` names the
oldest schema whose code still understands the present one.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, select

from rota.backends.sql import schema
from rota.errors import StoreRefused

VERSION_TABLE = "rota_schema"


def migrate(conn: Connection) -> None:
    """Apply what is missing. The caller makes sure that nobody else does so at the same time."""
    if _present(conn) not in _known():
        check_schema(conn)
        return
    config = _config()
    config.attributes["connection"] = conn
    command.upgrade(config, "head")


def is_current(conn: Connection) -> bool:
    """Whether there is nothing to apply."""
    return _present(conn) == _known()[-1]


def check_schema(conn: Connection) -> None:
    """Raise if the schema is missing, older than this release, or newer than this release understands."""
    present, known = _present(conn), _known()
    if present == known[-1]:
        return
    if present in known:
        what = "has no tables of rota" if present is None else f"has schema {present}, this release needs {known[-1]}"
        raise StoreRefused(f"the store {what}. Run: rota store migrate")
    m = schema.meta.c
    readable_from = conn.scalar(select(m.value).where(m.name == "readable_from"))
    if readable_from not in known:
        raise StoreRefused(
            f"the store has schema {present} of a newer release; this one knows up to {known[-1]}. Upgrade rota here."
        )


def _present(conn: Connection) -> str | None:
    if not inspect(conn).has_table(VERSION_TABLE):
        return None
    return MigrationContext.configure(conn, opts={"version_table": VERSION_TABLE}).get_current_revision()


def _known() -> list[str | None]:
    script = ScriptDirectory.from_config(_config())
    return [None, *reversed([revision.revision for revision in script.walk_revisions()])]


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config
