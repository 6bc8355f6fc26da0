"""The composition root: from a URL to a store. The only importer of backends."""

from __future__ import annotations

from rota.backends.memory import MemoryStore
from rota.ports import Clock, Store


def open_store(url: str, clock: Clock, *, actor: str, may_forget: bool = False) -> Store:
    """Make the store that a URL names. Nothing is sent to it yet; `actor` signs its history."""
    if url == "memory:":
        return MemoryStore(clock, actor=actor)
    from rota.backends.sql.connect import connect  # heavy: only where a database is used
    from rota.backends.sql.store import SqlStore

    return SqlStore(connect(url, clock), actor=actor, may_forget=may_forget)
