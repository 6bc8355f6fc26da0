"""The contract has teeth: each promise is broken on purpose, and the test that guards it must notice.

Every mutant re-introduces a known mistake into one store; the test named beside it then has to fail.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from itertools import count
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from rota.core import define, fire
from rota.core.conclude import conclude
from rota.core.fire import own_key
from rota.core.overlap import Floor
from rota.errors import StoreUnavailable
from rota.model import tables
from rota.model.dispatch import Ready, Seated, Seen
from rota.model.job import Job
from rota.model.plan import Facts, Plan
from rota.model.records import job_of
from rota.model.states import JobState
from rota.ports import Store
from rota.storage.sql import postgresql as outright
from rota.storage.sql.rows import SqlRows
from rota.transactions import change as change_module
from rota.transactions import decide as decide_module
from rota.transactions import finish as finish_module
from rota.transactions import plan as plan_module
from rota.transactions import rescue as rescue_module
from rota.transactions import round as round_module
from rota.transactions.round import LockedRound
from rota.transactions.tx import Tx
from tests.contract import (
    test_dispatch,
    test_finish,
    test_firing,
    test_lost_replies,
    test_nodes,
    test_overlap,
)
from tests.contract.conftest import SERVERS, Line, Open, empty

pytestmark = pytest.mark.prove

Patches = list[Any]


def with_other_keys(plan: Plan, now: datetime, *rest: Any, _real: Any = plan_module.rows) -> Any:
    """The key of a run depends on when it was written, so that the unique index keeps nothing out."""
    runs = tuple(msgspec.structs.replace(run, key=f"{run.key}#{now.timestamp()}") for run in plan.runs)
    return _real(msgspec.structs.replace(plan, runs=runs), now, *rest)


def dawdle(tx: Tx) -> None:
    """Give others time to read the same, so that a race that can be lost is lost."""
    conn = tx.rows.conn  # type: ignore[attr-defined]
    conn.exec_driver_sql("SELECT pg_sleep(0.1)" if conn.dialect.name == "postgresql" else "SELECT SLEEP(0.1)")


def hesitate(tx: Tx) -> None:
    """Take sometimes longer than others, so that what one has read is old when it writes."""
    conn = tx.rows.conn  # type: ignore[attr-defined]
    by_chance = "SELECT pg_sleep(random() * 0.1)" if conn.dialect.name == "postgresql" else "SELECT SLEEP(RAND() * 0.1)"
    conn.exec_driver_sql(by_chance)


def without_locks() -> Patches:
    """Check, then act: rows are read without locking them, the fence of the update is gone, and so is the last net,
    the unique key of a run."""

    def read(self: Tx, table: Any, keys: Any, *, skip: bool = False) -> Any:
        rows = self.rows.read(table, sorted(set(keys)))
        if table is tables.JOB:
            dawdle(self)
        return rows

    def unfenced(self: SqlRows, change: Any, rows: Any, *, exact: bool = False, _real: Any = SqlRows.change) -> None:
        _real(self, change, rows)

    return [
        patch.object(Tx, "lock", read),
        patch.object(SqlRows, "change", unfenced),
        patch.object(plan_module, "rows", with_other_keys),
    ]


def counting_before_the_lock() -> Patches:
    """The live runs are counted before the jobs and keys are locked."""
    lock, crowds = Tx.lock_jobs, decide_module._crowds
    counted: dict[int, Any] = {}

    def early(self: Tx, job_ids: Any, *, skip: bool = False) -> Any:
        jobs = [job_of(row) for row in self.rows.all(tables.JOB)]
        keys = sorted({own_key(job) for job in jobs})
        counted[id(self)] = crowds(self, decide_module.Ground(jobs, [], keys))[1]
        dawdle(self)
        return lock(self, job_ids, skip=skip)

    def late(tx: Tx, ground: Any) -> Any:
        known = counted.get(id(tx), {})
        if not ground.keys or not set(ground.keys) <= set(known):
            return crowds(tx, ground)
        tx.read_clock()
        return tx.now_us, {key: known[key] for key in ground.keys}

    return [patch.object(Tx, "lock_jobs", early), patch.object(decide_module, "_crowds", late)]


def no_idempotency_key() -> Patches:
    """A run that exists already under its key is not looked for, and its key is made unique by force."""
    return [
        patch.object(change_module, "_known_runs", lambda *_: {}),
        patch.object(plan_module, "rows", with_other_keys),
    ]


def insert_without_advance() -> Patches:
    """The runs are written, the next instant is not moved, and nothing keeps a key from being used twice."""
    return [
        patch.object(plan_module, "_change", lambda *_: None),
        *no_idempotency_key(),
    ]


def no_settling() -> Patches:
    """Apply, pause and delete forget what the old revision owes."""
    return [patch.object(define, "settle", lambda job, now, floor: (job, []))]


def no_digest() -> Patches:
    """Apply takes every definition for a changed one."""
    return [patch.object(define, "_is_same", lambda job, known: False)]


def pause_again() -> Patches:
    """Pausing a paused job makes a new revision."""

    def each(facts: Facts, state: JobState, change: Any) -> Plan:
        floor = Floor(facts.crowds)
        done = [change(job, facts, floor) for job in facts.jobs]
        return conclude(facts, floor, [it for it, _ in done], [run for _, owed in done for run in owed])

    return [patch.object(define, "_each", each)]


def no_release() -> Patches:
    """The end of a run lets nobody in."""
    return [patch.object(Floor, "release", lambda self, key: None)]


def early() -> Patches:
    """A job counts as due a minute before its time."""
    real = Job.is_due

    return [
        patch.object(Job, "is_due", lambda self, now: real(self, now + timedelta(minutes=1))),
        patch.object(fire, "owed", lambda job, now, _owed=fire.owed: _owed(job, now + timedelta(minutes=1))),
    ]


def rounds_without_a_lock() -> Patches:
    """Check, then act: what executes is counted before anybody is kept out. The last net, one grant for each round, is
    gone too: every round has a number of its own."""
    numbers = count(1000)

    def unlocked(self: Any, tx: Tx) -> Seen:
        (row,) = tx.rows.read(tables.DISPATCH, [1])
        arrivals = [(0, kind, data) for kind, data in tx.ask.take_arrivals()]
        return Seen(row.holder, row.epoch, next(numbers), row.changes, row.next_at, arrivals)

    def hesitant(tx: Tx, board: Any, _real: Any = round_module._rebuild) -> None:
        _real(tx, board)
        hesitate(tx)

    return [patch.object(LockedRound, "look", unlocked), patch.object(round_module, "_rebuild", hesitant)]


def lock_and_count_in_one_statement() -> Patches:
    """The snapshot of the count is older than the lock that was waited for."""
    seen: list[Any] = []

    def locked(self: Any, tx: Tx) -> Seen:
        sql = """
            SELECT d.id, d.holder, d.epoch, d.round, d.changes, d.next_at, q.item_id, q.lane_id, q.node_id, q.attempt,
                   q.state, q.run_id, q.job_id, q.start_by_at, q.not_before_at
            FROM rota_dispatch d LEFT JOIN rota_queue q ON true WHERE d.id = 1 FOR UPDATE OF d
        """
        seen[:] = tx.rows.conn.exec_driver_sql(sql).all()  # type: ignore[attr-defined]
        arrivals = [(0, kind, data) for kind, data in tx.ask.take_arrivals()]
        row = seen[0]
        return Seen(row.holder, row.epoch, row.round, row.changes, row.next_at, arrivals)

    def rebuild(tx: Tx, board: Any) -> None:
        rows = [row for row in seen if row.item_id is not None]
        round_module._know_lanes(tx, board, {row.lane_id for row in rows})
        hesitate(tx)
        ready = [row for row in rows if row.state == "ready"]
        board.rebuild(
            [
                Ready(it.item_id, it.run_id, it.job_id, it.lane_id, it.start_by_at, it.not_before_at, it.attempt)
                for it in ready
            ],
            [Seated(it.item_id, it.lane_id, it.node_id, it.attempt) for it in rows if it.state != "ready"],
        )

    return [patch.object(LockedRound, "look", locked), patch.object(round_module, "_rebuild", rebuild)]


def no_token() -> Patches:
    """Any end of an item counts, whichever attempt it was of; and the last net, the history's key, is gone."""
    checked = "AND attempt = (SELECT attempts FROM plan)[width_bucket(item_id, (SELECT ids FROM plan))]"
    assert checked in outright._END
    text = outright._END.replace(checked, "").replace("), told AS", "ON CONFLICT DO NOTHING), told AS")
    return [
        patch.object(outright, "_END", text),
        patch.object(finish_module, "_is_current", lambda end, row: True),
        patch.object(finish_module, "_write_attempts", lambda tx, ends: None),
    ]


def arrivals_after_the_queue() -> Patches:
    """What arrives between the two is known to nobody."""

    def emptied_later(tx: Tx, board: Any, _real: Any = round_module._rebuild) -> None:
        _real(tx, board)
        dawdle(tx)
        tx.ask.take_arrivals()

    return [patch.object(round_module, "_rebuild", emptied_later)]


def rescue_of_the_living() -> Patches:
    """A node's renewals since are not looked at."""

    def is_gone(now_us: int, lease: Any, node: Any, beat: int, margin_s: float, *, seen_gone: bool) -> bool:
        return real(now_us, lease, node, lease.beat, margin_s, seen_gone=seen_gone)

    real = rescue_module._is_gone
    return [patch.object(rescue_module, "_is_gone", is_gone)]


def rescue_before_the_margin() -> Patches:
    def is_gone(now_us: int, lease: Any, node: Any, beat: int, margin_s: float, *, seen_gone: bool) -> bool:
        return real(now_us, lease, node, beat, -3600.0, seen_gone=seen_gone)

    real = rescue_module._is_gone
    return [patch.object(rescue_module, "_is_gone", is_gone)]


@contextmanager
def mutated(patches: Patches) -> Iterator[None]:
    for it in patches:
        it.start()
    try:
        yield
    finally:
        for it in patches:
            it.stop()


@asynccontextmanager
async def one_try(another: Open) -> AsyncIterator[Open]:
    """An empty store, so that a try finds nothing of the one before; its connections end with it, for a server has
    only so many."""
    opened: list[Store] = []

    async def open_() -> Store:
        opened.append(await another())
        return opened[-1]

    try:
        await empty(await open_())
        yield open_
    finally:
        for store in opened:
            await store.close()


@contextmanager
def must_fail(what: str) -> Iterator[None]:
    try:
        yield
    except AssertionError as caught:
        line, *_ = str(caught).splitlines() or ["an assertion failed"]
        print(f"caught {what}: {line}")
        return
    pytest.fail(f"the mutant {what} was not noticed")


Test = Callable[[Any], Awaitable[None]]
TRIES = 50
"""A race is lost by chance: on an idle machine every one of these in each of ten tries, on both servers."""
TRIES_OF_ROUNDS = 25
"""The rarest of these in one try out of three or four, on PostgreSQL; and a try takes ten seconds and more."""

RACES: list[tuple[Callable[[], Patches], Test]] = [
    (without_locks, test_firing.test_two_nodes_fire_a_slot_once),
    (without_locks, test_firing.test_a_fire_that_races_a_pause_keeps_every_slot_once),
    (insert_without_advance, test_firing.test_two_nodes_fire_a_slot_once),
    (counting_before_the_lock, test_overlap.test_two_triggers_at_once_never_exceed_the_policy),
    (counting_before_the_lock, test_overlap.test_jobs_that_share_a_key_race_for_one_seat),
    (no_release, test_overlap.test_the_end_of_a_run_that_races_a_firing_leaves_no_run_waiting_for_nobody),
    (no_idempotency_key, test_overlap.test_the_same_idempotency_key_starts_one_run),
]

SINGLE: list[tuple[Callable[[], Patches], Test]] = [
    (early, test_firing.test_a_slot_is_never_early),
    (no_settling, test_firing.test_pause_settles_what_is_owed_and_then_owes_nothing),
    (no_settling, test_firing.test_apply_settles_under_the_old_version_first),
    (no_digest, test_firing.test_apply_twice_changes_nothing),
    (pause_again, test_firing.test_pause_settles_what_is_owed_and_then_owes_nothing),
    (no_token, test_finish.test_an_end_of_another_attempt_changes_nothing),
    (rescue_of_the_living, test_nodes.test_a_rescue_of_a_node_that_lives_changes_nothing),
    (rescue_before_the_margin, test_nodes.test_a_rescue_of_a_node_that_lives_changes_nothing),
]

ROUNDS: list[tuple[Callable[[], Patches], Test, tuple[str, ...]]] = [
    (rounds_without_a_lock, test_dispatch.test_an_item_is_given_once_however_many_ask, SERVERS),
    (lock_and_count_in_one_statement, test_dispatch.test_an_item_is_given_once_however_many_ask, ("postgresql",)),
    (arrivals_after_the_queue, test_dispatch.test_what_arrives_while_another_takes_over_is_not_forgotten, SERVERS),
]

REPLIES: list[tuple[Callable[[], Patches], Test]] = [
    (insert_without_advance, test_lost_replies.test_a_firing_whose_reply_is_lost_is_found_done),
    (no_digest, test_lost_replies.test_an_apply_whose_reply_is_lost_is_applied_once_and_says_so),
    (pause_again, test_lost_replies.test_a_pause_whose_reply_is_lost_settles_once),
    (no_idempotency_key, test_lost_replies.test_a_trigger_whose_reply_is_lost_starts_one_run),
]


def named(pair: object) -> str:
    return getattr(pair, "__name__", str(pair)).removeprefix("test_")


@pytest.mark.parametrize("another", SERVERS, indirect=True)
@pytest.mark.parametrize(("mutant", "test"), RACES, ids=named)
async def test_a_race_notices(mutant: Callable[[], Patches], test: Test, another: Open) -> None:
    with mutated(mutant()), must_fail(mutant.__name__):
        for _ in range(TRIES):
            async with one_try(another) as open_:
                await test(open_)


@pytest.mark.parametrize("another", SERVERS, indirect=True)
@pytest.mark.parametrize(("mutant", "test"), SINGLE, ids=named)
async def test_a_plain_test_notices(mutant: Callable[[], Patches], test: Test, another: Open) -> None:
    store = await another()
    with mutated(mutant()), must_fail(mutant.__name__):
        await test(store)


@pytest.mark.parametrize(
    ("another", "mutant", "test"),
    [(backend, mutant, test) for mutant, test, backends in ROUNDS for backend in backends],
    indirect=["another"],
    ids=named,
)
@pytest.mark.timeout(900)
async def test_a_race_of_rounds_notices(mutant: Callable[[], Patches], test: Test, another: Open) -> None:
    with mutated(mutant()), must_fail(mutant.__name__):
        for _ in range(TRIES_OF_ROUNDS):
            # On a busy machine the server ends a round that hesitates for too long.
            async with one_try(another) as open_:
                with suppress(StoreUnavailable):
                    await test(open_)


@pytest.mark.parametrize(("mutant", "test"), REPLIES, ids=named)
async def test_a_lost_reply_notices(mutant: Callable[[], Patches], test: Test, line: Line) -> None:
    with mutated(mutant()), must_fail(mutant.__name__):
        await test(line)


@pytest.mark.parametrize("another", SERVERS, indirect=True)
async def test_the_tests_pass_without_a_mutant(another: Open) -> None:
    """A test that fails anyway notices nothing."""
    for _, test, *_ in (*RACES, *ROUNDS):
        async with one_try(another) as open_:
            await test(open_)
