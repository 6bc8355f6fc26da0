"""What PostgreSQL does in one statement is held to the plain functions of `transactions/`, on random states.

A state is made, kept, and changed once by the plain path and once by the shortcut: what is returned and every row of
every table must be the same, but for ids and instants.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.core.advance import Advance
from rota.core.dispatch.board import Rounds
from rota.model.dispatch import Granted, ItemEnd, Round
from rota.model.value import decode
from rota.model.work import GLOBAL, Limit
from rota.storage.sql.store import SqlStore
from rota.transactions import finish as finish_module
from rota.transactions import round as round_module
from rota.transactions.cancel import cancel
from rota.transactions.finish import is_plain
from rota.transactions.limits import set_limits
from rota.transactions.tx import Shortcuts
from tests.contract.backup import Backup
from tests.contract.conftest import Open, empty
from tests.factories import a_node, a_start, an_end, assigned

pytestmark = [pytest.mark.prove, pytest.mark.parametrize("another", ["postgresql"], indirect=True)]

IGNORED = {"rota_counter", "rota_session", "rota_entry", "rota_lane"}
TIMES = {"at", "ended_at", "assigned_at", "created_at", "due_at", "until_at", "joined_at", "next_at", "busy"}
MANY = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

Deed = Callable[[], Awaitable[Any]]


async def rows_of(store: SqlStore) -> dict[str, list[str]]:
    """Every row, without what two runs cannot have in common."""
    kept = await Backup.of(store)
    found = {}
    for name, rows in kept._tables.items():
        if name not in IGNORED:
            shown = [{column: value for column, value in row.items() if column not in TIMES} for row in rows]
            if name in ("rota_arrival", "rota_event"):
                shown = [{column: value for column, value in row.items() if column != "id"} for row in shown]
            if name == "rota_arrival":  # what arrived together has no order
                shown = [row | {"data": sorted(decode(row["data"], list))} for row in shown]
            found[name] = sorted(repr(sorted(row.items())) for row in shown)
    return found


async def both_ways(store: SqlStore, plain: Deed, short: Deed) -> tuple[Any, Any]:
    """Do it plainly and by the shortcut, from the same state; compare the rows, and return what each has returned."""
    before = await Backup.of(store)
    first = await plain()
    after = await rows_of(store)
    await before.restore(store)
    second = await short()
    assert await rows_of(store) == after
    return first, second


async def a_queue(store: SqlStore, states: list[str]) -> list[Granted]:
    """A node, and items of an assignment in these states; as they were given to the node, or would have been."""
    await store.transact(set_limits, [Limit(name=GLOBAL, cap=1000), Limit(name="quota:acme/default")])
    node = await a_node(store, name="n1", seats=100)
    run = await assigned(store, len(states))
    board = Rounds()
    done = await round_module.dispatch(store, node, board, batch_max=sum(state != "ready" for state in states) or 1)
    granted = sorted((it for grant in done.grants.values() for it in grant.items), key=lambda it: it.position)
    ready = {it.id for it in await store.items(run.id)} - {it.item_id for it in granted}
    rest = [Granted(0, it, run.id, 0, granted[0].lane_id, 1, 0, 0) for it in sorted(ready)]
    for it, state in zip(granted, [state for state in states if state != "ready"], strict=False):
        if state in ("begun", "asked"):
            await finish_module.finish(store, [], [a_start(it)])
        elif state == "outside":
            await finish_module.finish(store, [], [a_start(it, expires_s=60.0)])
        elif state == "ended":
            await finish_module.finish(store, [an_end(it)])
    if "asked" in states:
        await store.transact(cancel, [run.id], rule=Advance())
    return granted + rest


def end_of(it: Granted, kind: str, outcome: str) -> ItemEnd:
    match kind:
        case "old attempt":
            return msgspec.structs.replace(an_end(it, outcome, round=1), attempt=it.attempt - 1)
        case "wrong round":
            return an_end(it, outcome, round=77)
        case "no round":
            return an_end(it, outcome)
        case "gone":
            return msgspec.structs.replace(an_end(it, outcome, round=1), item_id=it.item_id + 1_000_000)
    return an_end(it, outcome, round=1, message="it was so", result="[1]", log_bytes=3)


STATES = st.sampled_from(["ready", "given", "begun", "outside", "asked", "ended"])
KINDS = st.sampled_from(["current", "old attempt", "wrong round", "no round", "gone"])
OUTCOMES = st.sampled_from(["succeeded", "failed", "cancelled"])


@given(
    states=st.lists(STATES, min_size=1, max_size=8), told=st.lists(st.tuples(KINDS, OUTCOMES), min_size=1, max_size=8)
)
@MANY
async def test_plain_ends_are_the_same_in_one_statement(
    another: Open, states: list[str], told: list[tuple[str, str]]
) -> None:
    async with one_store(another) as store:
        granted = await a_queue(store, states)
        ends = [end_of(it, *how) for it, how in zip(granted, told, strict=False)]
        shortcut = store.shortcuts.end_items
        assert shortcut is not None
        assert is_plain(ends)

        async def finish(by: Any) -> frozenset[int]:
            store.shortcuts = Shortcuts(end_items=by)
            return (await finish_module.finish(store, ends)).stale

        plain, short = await both_ways(store, lambda: finish(None), lambda: finish(shortcut))
        assert plain == short


@given(
    first=st.integers(0, 6),
    then=st.integers(0, 6),
    ended=st.integers(0, 3),
    cap=st.integers(0, 8),
    seats=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    batch_max=st.integers(1, 10),
)
@MANY
async def test_a_round_is_the_same_without_the_lock(
    another: Open, first: int, then: int, ended: int, cap: int, seats: list[int], batch_max: int
) -> None:
    async with one_store(another) as store:
        await store.transact(set_limits, [Limit(name=GLOBAL, cap=cap), Limit(name="quota:acme/default")])
        nodes = [await a_node(store, name=f"n{n}", seats=count) for n, count in enumerate(seats)]
        if first:
            await assigned(store, first)
        board = Rounds()
        done = await round_module.dispatch(store, nodes[0], board, batch_max=batch_max)
        if then:
            await assigned(store, then)
        given_items = [it for grant in done.grants.values() for it in grant.items]
        if given_items[:ended]:
            await finish_module.finish(store, [an_end(it) for it in given_items[:ended]])
        shortcut = store.shortcuts.round
        assert shortcut is not None

        async def dispatch(by: Any) -> Round:
            store.shortcuts = Shortcuts(round=by)
            return await round_module.dispatch(store, nodes[0], copy.deepcopy(board), batch_max=batch_max)

        plain, short = await both_ways(store, lambda: dispatch(None), lambda: dispatch(shortcut))
        assert without_times(plain) == without_times(short)
        assert not short.took_over


def without_times(done: Round) -> object:
    grants = {node: grant.items for node, grant in done.grants.items()}
    return done.round, done.given, done.more, done.arrivals, grants, done.took_over


@asynccontextmanager
async def one_store(another: Open) -> AsyncIterator[SqlStore]:
    store = await another()
    assert isinstance(store, SqlStore)
    await empty(store)
    yield store
    await store.close()
