"""Final ends of items of assignments in one statement, which commits by itself.

Most ends need nothing else: no run to move, nothing to try again, nobody to tell. What `transactions/finish.py` does in
a lock, its check and three writes is one round trip here. The row of the queue decides: whoever deletes it has ended
the item, and it is deleted only while it is that attempt's. The other parts take all they write from what the DELETE
returns: a second join with the values would be planned for one row, and made for hundreds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.model import tables
from rota.model.dispatch import ItemEnd
from rota.model.records import clean
from rota.storage.sql.receipts import receipts_of
from rota.storage.sql.rows import SqlRows
from rota.storage.sql.sets import array_text


def end_items(tx: Any, ends: Sequence[ItemEnd]) -> set[int]:
    """Write them; returns the items that were ended, the others came too late."""
    rows = tx.rows
    assert isinstance(rows, SqlRows)
    columns = zip(*(_row(end) for end in ends), strict=True)
    arrival_id = next(tx.ids("row", 1))
    rows.is_sent = True
    found = rows.conn.exec_driver_sql(_END, (*map(array_text, columns), arrival_id)).all()
    tx.now_us = int(found[0].now)
    ended = {row.item_id for row in found}
    rows.receipts.extend(receipts_of(tables.ATTEMPT, [(it.item_id, it.attempt) for it in ends if it.item_id in ended]))
    return ended


def _row(end: ItemEnd) -> tuple[Any, ...]:
    what = (end.item_id, end.attempt, str(end.state), end.result, clean(end.message), str(end.outcome), end.code)
    return *what, end.node, end.round, end.assigned_us, end.started_us, end.log_bytes


_END = """
    WITH moment AS MATERIALIZED (
        SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS now
    ), over AS MATERIALIZED (
        SELECT * FROM unnest(
            $1::text::bigint[], $2::text::integer[], $3::text::text[], $4::text::text[], $5::text::text[],
            $6::text::text[], $7::text::integer[], $8::text::text[], $9::text::bigint[], $10::text::bigint[],
            $11::text::bigint[], $12::text::bigint[]
        ) AS v(item_id, attempt, state, result, message, outcome, code, node, round, assigned_at, started_at, log_bytes)
    ), gone AS (
        DELETE FROM rota_queue AS q USING over
        WHERE q.item_id = over.item_id AND q.attempt = over.attempt AND q.state <> 'ready'
        AND q.round IS NOT DISTINCT FROM coalesce(over.round, q.round)
        RETURNING over.*
    ), ended AS (
        UPDATE rota_item AS i SET state = gone.state, ended_at = now, result = gone.result, message = gone.message
        FROM gone, moment WHERE i.id = gone.item_id
    ), noted AS (
        INSERT INTO rota_attempt
            (item_id, attempt, node, round, assigned_at, started_at, ended_at, outcome, code, message, log_bytes)
        SELECT item_id, attempt, node, round, assigned_at, started_at, now, outcome, code, message, log_bytes
        FROM gone, moment
    ), told AS (
        INSERT INTO rota_arrival (id, at, kind, data)
        SELECT $13, min(now), 'ended', '[' || string_agg(item_id::text, ',') || ']' FROM gone, moment
        HAVING count(*) > 0
    )
    SELECT now, item_id, (SELECT pg_notify('rota', 'seats')) FROM moment LEFT JOIN gone ON true
"""
