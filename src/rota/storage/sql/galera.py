"""Locks that reach every member of a Galera cluster.

A member knows nothing of the locks of others, neither of rows nor of names. The members compare what transactions
wrote: of two that wrote the same row, the later one is undone and made again. So whatever rests on a lock also writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

TOUCHED_MAX = 256
"""How many rows all keys share: two keys that meet in one cost a repeat now and then."""
MIGRATING_S = 600
"""For how long a process that died while it migrated keeps others from it."""
LOOK_S = 0.2

_TABLE = "CREATE TABLE IF NOT EXISTS rota_migrating (id INT PRIMARY KEY, until_at BIGINT NOT NULL) ENGINE=InnoDB"
_ROW = "INSERT IGNORE INTO rota_migrating (id, until_at) VALUES (1, 0)"
_TAKE = f"""
    UPDATE rota_migrating SET until_at = UNIX_TIMESTAMP() + {MIGRATING_S} WHERE id = 1 AND until_at < UNIX_TIMESTAMP()
"""  # noqa: S608 - no input in it
_GIVE_BACK = "UPDATE rota_migrating SET until_at = 0 WHERE id = 1"
_CONFLICTS = (1205, 1213, 1062)


def touch(conn: Connection, keys: Iterable[str]) -> None:
    """Write something for each key that this transaction has locked."""
    numbers = sorted({crc32(key.encode()) % TOUCHED_MAX for key in keys})
    if numbers:
        rows = ", ".join(f"('lock:{number}', 1)" for number in numbers)
        conn.exec_driver_sql(
            f"INSERT INTO rota_counter (name, next) VALUES {rows} ON DUPLICATE KEY UPDATE next = next + 1"  # noqa: S608
        )


def lock(conn: Connection) -> None:
    """Wait until no process on any member migrates. The connection commits each statement by itself."""
    conn.exec_driver_sql(_TABLE)
    for _ in range(round(MIGRATING_S / LOOK_S)):
        try:
            conn.exec_driver_sql(_ROW)
            if conn.exec_driver_sql(_TAKE).rowcount == 1:
                return
        except OperationalError as error:
            if error.orig is None or error.orig.args[0] not in _CONFLICTS:
                raise
        conn.exec_driver_sql(f"SELECT SLEEP({LOOK_S})")
    raise TimeoutError("another node has been migrating this database for ten minutes")


def unlock(conn: Connection) -> None:
    conn.exec_driver_sql(_GIVE_BACK)
