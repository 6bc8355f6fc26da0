"""The tables of `model/tables.py` as a SQL database keeps them: how wide their columns are, and what else is indexed.

Instants are microseconds since the epoch in UTC, so that every database keeps them alike. Migrations build these
tables; a test compares both.
"""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text, UniqueConstraint
from sqlalchemy.dialects.mysql import MEDIUMTEXT

from rota.model import tables

metadata = MetaData()

_SMALL = (
    "version slots index attempt failures losses weight rate_max is_set dispatch.id code fenced keep number is_open "
    "tries arrived"
)
_WIDTHS = {
    16: "state cause reason outcome arrival.kind",
    64: "digest event.kind drained.roles",
    100: "name tenant project task node session_id session.id group_name rule",
    250: "source",
    255: "key overlap_key actor meta.value item.number limit.name number.name",
    302: "entry.folder",  # three words of a hundred
    403: "entry.key",  # and four
}
_TYPES: dict[str, Any] = {
    **dict.fromkeys(_SMALL.split(), Integer()),
    **{name: String(width) for width, names in _WIDTHS.items() for name in names.split()},
    "entry.version": BigInteger(),
}
"""Of the columns of this name, or of that of one table. All other numbers are large, and all other texts long."""
_LONG_TEXT = Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb")


def _table(table: tables.Table[Any], **indexes: tuple[str, ...]) -> Table:
    """A table with its key, what is unique in it, and indexes by their names."""
    hints = get_type_hints(table.row)
    nullable = {name for name, hint in hints.items() if type(None) in get_args(hint)}
    parts: list[Any] = []
    for name, hint in hints.items():
        default = BigInteger() if hint in (int, int | None) else _LONG_TEXT
        type_ = _TYPES.get(f"{table.name}.{name}", _TYPES.get(name, default))
        is_key = name in table.key
        parts.append(Column(name, type_, primary_key=is_key, autoincrement=False, nullable=name in nullable))
    for name, columns in table.unique.items():
        if nullable.isdisjoint(columns):
            parts.append(UniqueConstraint(*columns, name=f"rota_{table.name}_{name}"))
        else:
            parts.append(Index(f"rota_{table.name}_{name}", *columns, unique=True))
    parts += [Index(f"rota_{table.name}_{name}", *columns) for name, columns in indexes.items()]
    name = f"rota_{table.name}"
    return Table(name, metadata, *parts, mysql_engine="InnoDB", mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin")


meta = _table(tables.META)
counter = _table(tables.COUNTER)
job = _table(tables.JOB, next_fire=("next_fire_at",))
job_version = _table(tables.JOB_VERSION)
overlap = _table(tables.OVERLAP)
run = _table(
    tables.RUN,
    live=("overlap_key", "ended_at"),
    live_of_job=("job_id", "ended_at"),
    by_job=("job_id", "created_at"),
    by_age=("created_at",),
)
item = _table(tables.ITEM)
queue = _table(tables.QUEUE)
lane = _table(tables.LANE)
limit = _table(tables.LIMIT)
dispatch = _table(tables.DISPATCH)
arrival = _table(tables.ARRIVAL)
grant = _table(tables.GRANT, by_age=("at",))
attempt = _table(tables.ATTEMPT)
node = _table(tables.NODE, name=("name",))
lease = _table(tables.LEASE)
drained = _table(tables.DRAINED)
placed = _table(tables.PLACED)
held = _table(tables.HELD)
number = _table(tables.NUMBER)
event = _table(tables.EVENT, by_run=("run_id",), by_job=("job_id", "at"))
session = _table(tables.SESSION)
entry = _table(tables.ENTRY, by_folder=("folder",), by_session=("session_id",))
alarm_rule = _table(tables.ALARM_RULE)
alarm = _table(tables.ALARM, by_sorting=("sorted_at",), by_age=("at",), by_level=("is_open",))
delivery = _table(tables.DELIVERY, by_alarm=("alarm_id",), by_end=("ended_at",))
