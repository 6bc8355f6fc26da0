"""A round without the lock, in two statements: look, decide, and write if nothing has changed.

Who made the last round knows what runs. As long as the dispatch row still names it, with the same epoch, round and
number of changes, nobody else has given out a seat, set a limit or taken a node away. So the write compares that row
and does all or nothing; whoever took the lock meanwhile has changed the row. A round that cannot be made so is made
under the lock, as the first of a node always is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy.exc import DBAPIError

from rota.model.dispatch import Draft, Seen, TargetRow
from rota.model.value import decode, encode
from rota.storage.sql.rows import SqlRows
from rota.storage.sql.sets import array_text

_ITEMS_ARE_GONE = "22012"
"""The code of a division by zero, with which the statement undoes itself."""


class UnlockedRound:
    """How such a round is read and written."""

    takes_over = False

    def look(self, tx: Any) -> Seen:
        """Read the clock, the dispatch row, what arrived and who may be given something, all at one instant."""
        row = _rows(tx).conn.exec_driver_sql(_LOOK).one()
        arrivals = zip(row.ids or (), row.kinds or (), row.data or (), strict=True)
        nodes = decode(row.targets or "[]", list[tuple[int, str, str, int, int]])
        return Seen(
            holder=row.holder,
            epoch=row.epoch,
            round=row.round,
            changes=row.changes,
            next_us=row.next_at,
            arrivals=sorted(arrivals),
            now_us=int(row.now),
            targets=[TargetRow(*node) for node in nodes],
        )

    def targets(self, tx: Any, seen: Seen) -> tuple[int, Sequence[TargetRow]]:
        return seen.now_us, seen.targets

    def write(self, tx: Any, seen: Seen, draft: Draft) -> Collection[int] | None:
        """Nothing is written if the dispatch row has changed, or if an item is no longer ready."""
        given, grants = draft.plan.given, draft.grants
        parameters = (
            seen.holder,
            seen.epoch,
            seen.changes,
            draft.number,
            draft.plan.next_us,
            seen.round,
            array_text(id_ for id_, _, _ in seen.arrivals),
            draft.now_us,
            array_text(grants),
            array_text(encode(grant.items) for grant in grants.values()),
            array_text(it.ready.item_id for it in given),
            array_text(it.ready.attempt for it in given),
            array_text(it.node_id for it in given),
            len(given),
            array_text(f"node:{node_id}" for node_id in grants if node_id != seen.holder),
        )
        rows = _rows(tx)
        rows.is_sent = True
        try:
            is_written = bool(rows.conn.exec_driver_sql(_WRITE, parameters).scalar())
        except DBAPIError as error:
            if rows.dialect.code(error) == _ITEMS_ARE_GONE:
                return None
            raise
        return {it.ready.item_id for it in given} if is_written else None


def _rows(tx: Any) -> SqlRows:
    assert isinstance(tx.rows, SqlRows)
    return tx.rows


_NOW = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"

_LOOK = f"""
    SELECT {_NOW} AS now, d.holder, d.epoch, d.round, d.changes, d.next_at, a.ids, a.kinds, a.data,
        (
            SELECT json_agg(json_build_array(n.id, n.name, n.joined, l.busy, l.until_at))
            FROM rota_node AS n JOIN rota_lease AS l ON l.node_id = n.id
            WHERE l.until_at > {_NOW} AND l.fenced = 0 AND n.state = 'online'
            AND NOT EXISTS (
                SELECT FROM rota_drained AS r WHERE r.name = n.name AND (r.roles IS NULL OR r.roles LIKE '%executor%')
            )
        )::text AS targets
    FROM rota_dispatch AS d
    CROSS JOIN (SELECT array_agg(id) AS ids, array_agg(kind) AS kinds, array_agg(data) AS data FROM rota_arrival) AS a
    WHERE d.id = 1
"""  # noqa: S608 - no input in it

_WRITE = """
    WITH mine AS (
        UPDATE rota_dispatch SET round = $4, next_at = $5
        WHERE id = 1 AND holder = $1 AND epoch = $2 AND changes = $3 AND round = $6
        RETURNING id
    ), emptied AS (
        DELETE FROM rota_arrival
        WHERE id = ANY((SELECT $7::text::bigint[])::bigint[]) AND EXISTS (SELECT FROM mine)
    ), granted AS (
        INSERT INTO rota_grant (node_id, round, at, holder, data)
        SELECT v.node_id, $4, $8, $1, v.data FROM unnest($9::text::bigint[], $10::text::text[]) AS v(node_id, data)
        WHERE EXISTS (SELECT FROM mine)
    ), given AS (
        UPDATE rota_queue AS t
        SET state = 'assigned', attempt = t.attempt + 1, node_id = v.node_id, round = $4, assigned_at = $8
        FROM unnest($11::text::bigint[], $12::text::integer[], $13::text::bigint[]) AS v(item_id, attempt, node_id)
        WHERE t.item_id = v.item_id AND t.attempt = v.attempt AND t.state = 'ready' AND EXISTS (SELECT FROM mine)
        RETURNING t.item_id
    ), counted AS (
        SELECT (SELECT count(*) FROM mine) AS mine, (SELECT count(*) FROM given) AS given
    )
    SELECT mine / (mine = 0 OR given = $14)::integer,
        (SELECT count(pg_notify('rota', topic)) FROM unnest($15::text::text[]) AS topic)
    FROM counted
"""
