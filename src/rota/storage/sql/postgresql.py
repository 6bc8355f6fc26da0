"""What only PostgreSQL can do. A test holds its statements to the plain functions of `transactions/`.

**A round without the lock**, in two statements: look, decide, and write if nothing has changed. Who made the last round
knows what runs. As long as the dispatch row still names it, with the same epoch, round and number of changes, nobody
else has given out a seat, set a limit or taken a node away. So the write compares that row and does all or nothing;
whoever took the lock meanwhile has changed the row. A round that cannot be made so is made under the lock, as the first
of a node always is.

**Final ends of items of assignments** in one statement, which commits by itself. Most ends need nothing else: no run to
move, nothing to try again, nobody to tell. What `transactions/finish.py` does in a lock, its check and three writes is
one round trip here. The row of the queue decides: whoever deletes it has ended the item, and it is deleted only while
it is that attempt's. The other parts take what they write from the values of the items that the DELETE returns, which
are looked up in a hash table: `IS TRUE` keeps the planner from a join, planned for one row and made for hundreds.

**Listening** to what it notifies. A connection that is lost is made again, for as long as it takes: a notice that was
missed costs time, nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError

from rota.model.dispatch import Draft, ItemEnd, Seen, TargetRow
from rota.model.records import clean
from rota.model.value import decode, encode
from rota.ports import Clock
from rota.storage.sql.receipts import end_receipts
from rota.storage.sql.rows import SqlRows
from rota.storage.sql.sets import array_text

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

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
        given, grants = sorted(draft.plan.given, key=lambda it: it.ready.item_id), draft.grants
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

# The queue is empty at one moment and full at the next, and a planner knows only how it was. To join it with the values
# of many items it would rather go through all of it, and for each row through all values. So rows are found by their
# keys alone, and the values of a row by the place that its key has among all, which rise.
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
    ), plan AS MATERIALIZED (
        SELECT $11::text::bigint[] AS ids, $12::text::integer[] AS attempts, $13::text::bigint[] AS nodes
    ), given AS (
        UPDATE rota_queue SET state = 'assigned', attempt = attempt + 1, round = $4, assigned_at = $8,
            node_id = (SELECT nodes FROM plan)[width_bucket(item_id, (SELECT ids FROM plan))]
        WHERE item_id = ANY((SELECT ids FROM plan)::bigint[]) AND state = 'ready' AND EXISTS (SELECT FROM mine)
        AND attempt = (SELECT attempts FROM plan)[width_bucket(item_id, (SELECT ids FROM plan))]
        RETURNING item_id
    ), counted AS (
        SELECT (SELECT count(*) FROM mine) AS mine, (SELECT count(*) FROM given) AS given
    )
    SELECT mine / (mine = 0 OR given = $14)::integer,
        (SELECT count(pg_notify('rota', topic)) FROM unnest($15::text::text[]) AS topic)
    FROM counted
"""


def end_items(tx: Any, ends: Sequence[ItemEnd]) -> set[int]:
    """Write them; returns the items that were ended, the others came too late."""
    rows = _rows(tx)
    columns = zip(*sorted(map(_row, ends), key=itemgetter(0)), strict=True)
    arrival_id = next(tx.ids("row", 1))
    rows.is_sent = True
    done = rows.conn.exec_driver_sql(_END, (*map(array_text, columns), arrival_id, len(ends))).one()
    tx.now_us = int(done.now)
    ended = {it.item_id for it in ends} if done.ids is None else set(done.ids)
    rows.receipts.extend(end_receipts(((it.item_id, it.attempt) for it in ends if it.item_id in ended), tx.now_us))
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
    ), plan AS MATERIALIZED (
        SELECT $1::text::bigint[] AS ids, $2::text::integer[] AS attempts, $9::text::bigint[] AS rounds
    ), left_queue AS (
        DELETE FROM rota_queue
        WHERE item_id = ANY((SELECT ids FROM plan)::bigint[]) AND state <> 'ready'
        AND attempt = (SELECT attempts FROM plan)[width_bucket(item_id, (SELECT ids FROM plan))]
        AND round IS NOT DISTINCT FROM coalesce(
            (SELECT rounds FROM plan)[width_bucket(item_id, (SELECT ids FROM plan))], round
        )
        RETURNING item_id
    ), gone AS MATERIALIZED (
        SELECT * FROM over WHERE (item_id IN (SELECT item_id FROM left_queue)) IS TRUE
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
    SELECT now, CASE WHEN count = $14 THEN NULL ELSE ids END AS ids, (SELECT pg_notify('rota', 'seats'))
    FROM moment, (SELECT count(*) AS count, coalesce(array_agg(item_id), '{}') AS ids FROM gone) AS counted
"""


CHANNEL = "rota"
CHECK_S = 15.0
"""How often a silent connection is asked whether it is still there."""
ANSWER_S = 5.0
"""How long its answer may take."""
MISSED = ("dispatch", "jobs", "entry:")
"""What to wake for when nobody knows what was said."""
BACKOFF_S = 0.1
BACKOFF_S_MAX = 0.5


class NotificationListener:
    """One connection that listens, from when it is made until it is closed."""

    def __init__(self, engine: AsyncEngine, clock: Clock, wake: Callable[[str], None]) -> None:
        self._engine = engine
        self._clock = clock
        self._wake = wake
        self._pause_s = BACKOFF_S
        self._task = asyncio.get_running_loop().create_task(self._listen())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
            except Exception:  # noqa: BLE001 - whatever a server says while it starts or recovers, it is asked again
                await self._clock.sleep(self._pause_s * (0.5 + self._clock.chance()))
                self._pause_s = min(self._pause_s * 2, BACKOFF_S_MAX)

    async def _hear(self) -> None:
        async with self._engine.connect() as conn:
            try:
                raw: Any = (await conn.get_raw_connection()).driver_connection
                lost = asyncio.Event()
                raw.add_termination_listener(lambda _connection: lost.set())
                await raw.add_listener(CHANNEL, self._heard)
                self._pause_s = BACKOFF_S
                for topic in MISSED:  # whatever was said before is lost
                    self._wake(topic)
                while True:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(CHECK_S):
                            await lost.wait()
                    async with asyncio.timeout(ANSWER_S):
                        await conn.exec_driver_sql("SELECT 1")
            finally:
                await conn.invalidate()

    def _heard(self, _connection: object, _pid: int, _channel: str, topic: str) -> None:
        self._wake(topic)
