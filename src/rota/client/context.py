"""What a running task can know about itself, and how it guards its effects.

`current()` works in the function of a task, in what it awaits and in threads that get its context; with one item at a
time in a process also in all other threads. `fence()` makes the effects of a newer attempt final: what an older one
that still lives does to the same key afterwards is refused, inside the task's own transaction.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Protocol

from rota.errors import Refused, old_name
from rota.model.value import Json, Value

TABLE = "rota_fence"


class Context(Value, frozen=True, kw_only=True):
    """The attempt that is running here."""

    run_id: int
    """The run."""
    item_id: int
    """The item."""
    attempt: int
    """1 for the first attempt at the item."""
    token: int
    """Higher for every attempt; a resource that remembers the highest can refuse older ones."""
    idempotency_key: str
    """The same for every attempt at the item."""
    job: str
    """The full name of the job; for an assigned item, of its tenant."""
    task: str
    """The task of that job."""
    index: int = 0
    """The place of the item among those of its task, from 0."""
    slot_at: datetime | None = None
    """The instant for which the run was fired; none if it was not fired by a trigger."""
    params: dict[str, Json] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    """The parameters of the run."""
    number: str | None = None
    """The client's number of an assigned item."""
    info: Json = None
    """What the client gave with it."""


class Told(Value, frozen=True, kw_only=True):
    """What `on_start`, `on_fail` and `on_timeout` are called with."""

    id: int
    """The item; `finish` takes it."""
    token: int
    """That of the attempt; `finish` and `extend` take it."""
    number: str | None = None
    """The client's number of the item."""
    info: Json = None
    """What the client gave with it."""
    tenant: str
    """Whose item it is."""
    attempt: int = 1
    """Which attempt at the item it is about."""
    message: str = ""
    """Why it failed, for `on_fail` and `on_timeout`."""

    @property
    def uuid(self) -> str:
        """The name that `id` had in release 0.1."""
        return old_name("Told.uuid", "id", str(self.id))


class Stopped(BaseException):
    """Raised inside a plain function whose time is up, or that was cancelled: it may clean up, and shall end.

    It is no `Exception`, so that code that catches those does not go on by mistake.
    """


class StaleToken(Refused):
    """A newer attempt has already taken the key: this one must have no more effects."""


Source = Context | Callable[[], Context]

_here: ContextVar[Source | None] = ContextVar("rota_task", default=None)


class _Alone:
    """The only item of this process, for threads that nobody gave a context."""

    source: Source | None = None


def current() -> Context:
    """The attempt that is running here. Raises Refused outside of a task."""
    source = _here.get() or _Alone.source
    if source is None:
        raise Refused("there is no current task here; rota.current() works inside of a task that a node is running")
    return source if isinstance(source, Context) else source()


def enter(source: Source | None) -> None:
    """Say, for this context, what is running. For workers and testing kits."""
    _here.set(source)


def enter_alone(source: Source | None) -> None:
    """Say what is running in this process, which does one thing at a time."""
    _Alone.source = source
    _here.set(source)


class FencedConnection(Protocol):
    """What is used of a DB-API connection."""

    def cursor(self) -> Any: ...


_UPSERT = (
    f"INSERT INTO {TABLE} (key, token) VALUES (?, ?) "  # noqa: S608 - a constant
    f"ON CONFLICT (key) DO UPDATE SET token = excluded.token WHERE {TABLE}.token <= excluded.token"
)
_MYSQL_UPSERT = (
    f"INSERT INTO {TABLE} (`key`, token) VALUES (?, ?) "  # noqa: S608 - a constant
    "ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))"
)
_MYSQL_SEEN = f"SELECT token FROM {TABLE} WHERE `key` = ? FOR UPDATE"  # noqa: S608 - a constant
_MYSQL_DRIVERS = frozenset({"pymysql", "MySQLdb", "mysql", "mariadb"})
_MARKS = {"qmark": "?", "numeric": ":1", "format": "%s", "pyformat": "%s"}


def fence(connection: FencedConnection, key: str | None = None) -> None:
    """Refuse to go on if a newer attempt was here: one statement in the transaction that the task is about to make.

    The database needs `CREATE TABLE rota_fence (key VARCHAR(500) PRIMARY KEY, token BIGINT NOT NULL)`. The key is the
    item's idempotency key unless another is given. Raises StaleToken; then roll back.
    """
    here = current()
    key = here.idempotency_key if key is None else key
    driver = type(connection).__module__.partition(".")[0]
    cursor = connection.cursor()
    try:
        passed = _passed_mysql if driver in _MYSQL_DRIVERS else _passed
        if not passed(cursor, _mark(driver), key, here.token):
            raise StaleToken(
                f"a newer attempt has taken {key!r}; attempt {here.attempt} must change nothing more: roll back"
            )
    finally:
        cursor.close()


def _passed(cursor: Any, mark: str, key: str, token: int) -> bool:
    cursor.execute(_marked(_UPSERT, mark), (key, token))
    return bool(cursor.rowcount == 1)


def _passed_mysql(cursor: Any, mark: str, key: str, token: int) -> bool:
    """Two statements, as the first does not tell whether it changed anything. The row stays locked between them, and
    the second reads what is there now, not what the transaction saw when it began."""
    cursor.execute(_marked(_MYSQL_UPSERT, mark), (key, token))
    cursor.execute(_marked(_MYSQL_SEEN, mark), (key,))
    return bool(cursor.fetchone()[0] == token)


def _mark(driver: str) -> str:
    """How the driver writes a parameter."""
    style = getattr(sys.modules.get(driver), "paramstyle", "qmark")
    if style not in _MARKS:
        raise Refused(f"fence() does not know the parameter style {style!r} of the driver {driver}")
    return _MARKS[style]


def _marked(statement: str, mark: str) -> str:
    if mark == ":1":
        for number in range(1, statement.count("?") + 1):
            statement = statement.replace("?", f":{number}", 1)
        return statement
    return statement.replace("?", mark)
