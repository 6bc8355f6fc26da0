"""Where the nodes of a cluster hear words, and the key that proves one: rows of the store."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, select

from rota.model import tables
from rota.storage.sql import schema
from rota.storage.sql.dialect import Dialect
from rota.storage.sql.sets import Insert, WritePart
from rota.storage.sql.word.sender import TOLD_MAX, Addresses

KEY = "wake_key"
"""The row of `rota_meta`. The first node makes it up; who can read the store can read it."""


class _Place(msgspec.Struct):
    address: str = ""


def read_addresses(conn: Connection) -> Addresses:
    """In one statement."""
    n, m = schema.node.c, schema.meta.c
    key = select(m.value).where(m.name == KEY).scalar_subquery()
    live = schema.node.join(schema.lease, schema.lease.c.node_id == n.id)
    rows = conn.execute(select(n.id, n.joined, key.label("word_key")).select_from(live).limit(TOLD_MAX)).all()
    found = next((row.word_key for row in rows if row.word_key), None)
    places = {int(row.id): msgspec.json.decode(row.joined, type=_Place).address for row in rows}
    return Addresses(bytes.fromhex(found) if found else None, {id_: it for id_, it in places.items() if it})


def made_key(conn: Connection, dialect: Dialect, new: str) -> bytes:
    """The key of the cluster; it is `new` if there was none."""
    m = schema.meta.c
    wanted = select(m.value).where(m.name == KEY)
    found = conn.scalars(wanted).one_or_none()
    if found is None:
        dialect.write(conn, [WritePart(Insert(tables.META, missing=True), [(KEY, new)])])
        found = conn.scalars(wanted).one()
    return bytes.fromhex(found)
