"""Topics that leave with a commit, where the database itself tells nobody: they are kept with the connection until the
transaction is committed. What was rolled back is told to nobody."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

_KEPT = "rota_topics"


def keep(conn: Connection, topics: Sequence[str]) -> None:
    """Tell these if the transaction commits."""
    if topics:
        conn.info.setdefault(_KEPT, []).extend(topics)


def take(conn: Connection) -> list[str]:
    """What to tell now, each once; for the next transaction nothing is left."""
    return list(dict.fromkeys(conn.info.pop(_KEPT, ())))
