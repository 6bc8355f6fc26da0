"""Entries and sessions in the database.

Who writes locks the counter of entries first, so that writes come one after the other: their numbers rise in the order
of their commits, and what was read under the lock still holds when it is written. Only a renewal does without: it
touches the row of its own session, which goes by the store's clock like everything here.

Claims of a session that is over are no more, whether or not somebody has removed them yet: reads do not show them, and
every write begins by removing them.

Changes are told by topic, one for each folder that a transaction changed:

    entry:live/a    that entry
    entry:live/     several entries directly in that folder
    entry:          anything: what was told before may have been missed
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    String,
    and_,
    bindparam,
    delete,
    exists,
    func,
    or_,
    select,
    update,
)

from rota.model import tables
from rota.model.entry import Entry, folder_of
from rota.storage.sql import schema
from rota.storage.sql.dialect import Dialect
from rota.storage.sql.sets import Insert, Write, WritePart

COUNTER = "entry"
PREFIX = "entry:"
AHEAD_US = 660_000_000
"""No session is renewed for longer than 600 s (`coordinator.session_s`). One that shall live for longer is over: the
clock was set back since, or somebody else wrote it. Who lives renews it before others look, or joins anew."""
E, S, C = schema.entry.c, schema.session.c, schema.counter.c


class Entries:
    """All entries, while a transaction has them for itself."""

    def __init__(self, conn: Connection, dialect: Dialect, own: str | None) -> None:
        self._conn = conn
        self._dialect = dialect
        self._own = own
        self._next = 0
        self._now_us = 0
        self._kept: dict[Write, list[tuple[Any, ...]]] = {}
        self._changed: list[str] = []
        self.has_session = False
        """Whether the session of this client lives."""

    def lock(self) -> None:
        """Let nobody else write until this transaction is over; then end the sessions whose time is over."""
        self._next = self._locked_counter()
        found = self._conn.execute(_sessions(self._dialect), {"own": self._own}).all()
        self._now_us = int(found[0].now)
        sessions = [row for row in found if row.id is not None]
        over = self._over([it.id for it in sessions if not 0 < it.until_at - self._now_us <= AHEAD_US])
        self.end(over)
        self.has_session = self._own is not None and self._own in {row.id for row in found}.difference(over)

    def _locked_counter(self) -> int:
        """The number of the next write. If the counter was lost, it goes on behind all that is there."""
        wanted = self._dialect.locked(select(C.next).where(C.name == COUNTER))
        found: int | None = self._conn.scalars(wanted).one_or_none()
        if found is None:
            last = self._conn.scalar(select(func.max(E.version))) or 0
            self._write(Insert(tables.COUNTER, missing=True), [(COUNTER, last + 1)])
            found = int(self._conn.scalars(wanted).one())
        return found

    def tell(self) -> None:
        """Write what is left to write, and tell that something has changed: the last step."""
        if self._changed:
            self._set(tables.COUNTER, COUNTER, next=self._next)
            parts = [WritePart(write, rows) for write, rows in self._kept.items()]
            self._dialect.write(self._conn, parts, topics_of(self._changed))

    def begin(self, session: str, ttl_us: int) -> None:
        self._write(Insert(tables.SESSION), [(session, self._now_us + ttl_us)])

    def end(self, sessions: Collection[str]) -> None:
        """End sessions, and their claims with them."""
        if not sessions:
            return
        theirs = self._dialect.among(E.session_id, sessions)
        self._remove(self._conn.scalars(select(E.key).where(theirs)).all())
        self._conn.execute(delete(schema.session).where(self._dialect.among(S.id, sessions)))

    def claim(self, values: Mapping[str, str]) -> dict[str, int]:
        found = self._found(values)
        won = {key: row.fence for key, row in found.items() if row.session_id == self._own}
        return won | {key: self._add(key, value, self._own) for key, value in values.items() if key not in found}

    def release(self, fences: Mapping[str, int]) -> None:
        found = self._found(fences)
        self._remove([key for key, fence in fences.items() if self._holds(found.get(key), fence)])

    def update(self, key: str, fence: int, value: str) -> bool:
        held = self._holds(self._found([key]).get(key), fence)
        if held:
            self._change(key, value)
        return held

    def put(self, key: str, value: str, version: int | None) -> int | None:
        found = self._found([key]).get(key)
        if found is not None and found.session_id is not None:
            return None
        if version not in (None, 0 if found is None else found.version):
            return None
        return self._add(key, value) if found is None else self._change(key, value)

    def delete(self, key: str, version: int) -> bool:
        found = self._found([key]).get(key)
        if found is None or found.version != version:
            return False
        self._remove([key])
        return True

    def _over(self, sessions: Sequence[str]) -> Sequence[str]:
        """Those that are still over once a renewal that is under way is done; from here on none can come."""
        if not sessions:
            return ()
        late = select(S.id).where(self._dialect.among(S.id, sessions), _is_over(self._now_us))
        return self._conn.scalars(self._dialect.locked(late.order_by(S.id))).all()

    def _found(self, keys: Collection[str]) -> dict[str, Row[Any]]:
        """What is there. Claims whose session was lost are removed: reads do not show them, and nobody would end them
        any more."""
        source = schema.entry.outerjoin(schema.session, S.id == E.session_id)
        wanted: Select[Any] = select(E.key, E.version, E.session_id, E.fence, S.id.label("lives")).select_from(source)
        found = self._conn.execute(wanted.where(self._dialect.among(E.key, keys))).all()
        self._remove([row.key for row in found if row.session_id is not None and row.lives is None])
        return {row.key: row for row in found if row.session_id is None or row.lives is not None}

    def _holds(self, row: Row[Any] | None, fence: int) -> bool:
        return row is not None and row.session_id == self._own and row.fence == fence

    def _add(self, key: str, value: str, session: str | None = None) -> int:
        number = self._number(key)
        row = (key, folder_of(key), value, number, session, 0 if session is None else number)
        self._kept.setdefault(Insert(tables.ENTRY), []).append(row)
        return number

    def _change(self, key: str, value: str) -> int:
        number = self._number(key)
        self._set(tables.ENTRY, key, value=value, version=number)
        return number

    def _set(self, table: tables.Table[Any], key: str, **fields: Any) -> None:
        """Change one row; where one statement can write everything, together with the rest."""
        change, row = tables.Change(table, table.key, tuple(fields)), (key, *fields.values())
        if self._dialect.writes_in_one:
            self._kept[change] = [row]
        else:
            self._write(change, [row])

    def _write(self, write: Write, rows: list[tuple[Any, ...]]) -> None:
        self._dialect.write(self._conn, [WritePart(write, rows)])

    def _remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._number(key)
        if keys:
            self._conn.execute(delete(schema.entry).where(self._dialect.among(E.key, keys)))

    def _number(self, key: str) -> int:
        """The number of a write."""
        self._changed.append(key)
        self._next += 1
        return self._next - 1


class SessionRenewal(NamedTuple):
    """What a renewal has found."""

    lives: bool
    """Whether the session does, and now for longer."""
    number: int
    """It is another one after every write."""
    others_over: bool


def renew(conn: Connection, dialect: Dialect, session: str | None, ttl_us: int, seen: int) -> SessionRenewal:
    """Prolong a session if it still lives, and look around; `seen` is the number of the last look. One small statement
    if all is as it was, else three; none of them waits for a transaction."""
    now = dialect.statement_now_us()
    mine = update(schema.session).where(S.id == session, S.until_at > now).values(until_at=now + ttl_us)
    number = select(C.next).where(C.name == COUNTER).scalar_subquery()
    one_over = select(S.id).where(_is_over(now)).limit(1).subquery()  # a table of its own: MySQL reads no other here
    if session is not None and seen:
        calm = mine.where(number == seen, ~exists(select(one_over.c.id)))
        if conn.execute(calm).rowcount == 1:
            return SessionRenewal(lives=True, number=seen, others_over=False)
    lives = session is not None and conn.execute(mine).rowcount == 1
    over = exists(select(S.id).where(_is_over(now)))
    row = conn.execute(select(C.next, over.label("over")).where(C.name == COUNTER)).one_or_none()
    return (
        SessionRenewal(lives, 0, others_over=True) if row is None else SessionRenewal(lives, row.next, bool(row.over))
    )


def get(conn: Connection, dialect: Dialect, key: str) -> Entry | None:
    row = conn.execute(_shown(dialect, *schema.entry.columns).where(E.key == key)).one_or_none()
    return None if row is None else _entry_of(row)


def read(conn: Connection, dialect: Dialect, folder: str) -> tuple[Entry, ...]:
    rows = conn.execute(_shown(dialect, *schema.entry.columns).where(E.folder == folder))
    return tuple(sorted(map(_entry_of, rows), key=lambda it: it.key))


def keys(conn: Connection, dialect: Dialect, folder: str) -> frozenset[str]:
    return frozenset(conn.scalars(_shown(dialect, E.key).where(E.folder == folder)))


def _shown(dialect: Dialect, *columns: Any) -> Select[Any]:
    """Entries without the claims of sessions that are over."""
    source = schema.entry.outerjoin(schema.session, S.id == E.session_id)
    now = dialect.statement_now_us()
    lasting = or_(E.session_id.is_(None), and_(S.until_at > now, S.until_at <= now + AHEAD_US))
    return select(*columns).select_from(source).where(lasting)


def _is_over(now: Any) -> ColumnElement[bool]:
    return or_(S.until_at <= now, S.until_at > now + AHEAD_US)


@lru_cache
def _sessions(dialect: Dialect) -> Select[Any]:
    """The clock, the client's own session, and those that are over: at least one row."""
    now = select(dialect.statement_now_us().label("now")).subquery()
    wanted = or_(S.id == bindparam("own", type_=String), _is_over(now.c.now))
    return select(now.c.now, S.id, S.until_at).select_from(now.outerjoin(schema.session, wanted))


def _entry_of(row: Row[Any]) -> Entry:
    return Entry(key=row.key, value=row.value, version=row.version, session=row.session_id, fence=row.fence)


def topics_of(keys: Iterable[str]) -> list[str]:
    """What to tell of entries that have changed."""
    folders: dict[str, set[str]] = {}
    for key in keys:
        folders.setdefault(folder_of(key), set()).add(key)
    return [PREFIX + (changed.pop() if len(changed) == 1 else f"{folder}/") for folder, changed in folders.items()]


def concerns(topic: str, listened: str) -> bool:
    """Whether a topic tells of a change in a folder that somebody listens to, or of its own entry."""
    if not topic.startswith(PREFIX):
        return False
    name = topic.removeprefix(PREFIX)
    if name.endswith("/"):
        return name[:-1] in (listened, folder_of(listened))
    return not name or listened in (name, folder_of(name))
