"""Rounds that PostgreSQL makes without the lock: whatever comes between the look and the write is noticed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.util import await_only

from rota.core.advance import Advance
from rota.core.dispatch.board import Rounds
from rota.core.fire import Fire
from rota.model.cluster import Drain
from rota.model.dispatch import Round
from rota.model.work import GLOBAL, Limit, Rate
from rota.ports import Store
from rota.storage.sql import postgresql as unlocked
from rota.storage.sql.postgresql import UnlockedRound
from rota.transactions.assign import assign
from rota.transactions.cancel import cancel
from rota.transactions.finish import finish
from rota.transactions.fire import fire
from rota.transactions.limits import all_limits, set_limits
from rota.transactions.members import drain, leave
from rota.transactions.rescue import rescue
from rota.transactions.round import dispatch
from tests.contract.conftest import Open
from tests.factories import a_due_job, a_node, an_assignment, an_end, assigned

Between = Callable[[], Awaitable[object]]


class Desk:
    """A node that has made a round and goes on without the lock, and another connection to the same store."""

    def __init__(self, store: Store, other: Store, node: int) -> None:
        self.store, self.other, self.node = store, other, node
        self.board = Rounds()

    async def round(self, between: Between | None = None) -> Round:
        """One more round; something happens between what it reads and what it writes."""
        happened: list[object] = []

        def write(*arguments: Any, _real: Any = UnlockedRound.write) -> Any:
            if between is not None and not happened:
                happened.append(between)
                await_only(between())
            return _real(*arguments)

        with patch.object(UnlockedRound, "write", write):
            done = await dispatch(self.store, self.node, self.board, batch_max=100)
        assert between is None or happened, "void: this round was not made without the lock"
        return done


@pytest.fixture
async def desk(another: Open) -> Desk:
    store, other = await another(), await another()
    await store.transact(set_limits, [Limit(name=GLOBAL, cap=100), Limit(name="quota:acme/default")])
    desk = Desk(store, other, await a_node(store, name="n1", seats=100))
    await desk.round()
    await assigned(store, 2)
    return desk


pytestmark = pytest.mark.parametrize("another", ["postgresql"], indirect=True)


async def test_the_first_round_is_made_under_the_lock_and_the_next_without(desk: Desk) -> None:
    async def nothing() -> None: ...

    done = await desk.round(nothing)
    assert (done.given, done.took_over, done.round) == (2, False, 2)
    granted = await desk.store.granted(desk.node, 1)
    assert [len(grant.items) for grant in granted] == [2]
    await finish(desk.store, [an_end(it) for it in granted[0].items])
    again = await desk.round(nothing)
    assert (again.given, again.arrivals) == (0, 1)


async def test_a_round_that_finds_nothing_new_writes_nothing(desk: Desk) -> None:
    await desk.round()
    before = (await desk.store.pulse(desk.node)).granted
    done = await desk.round()
    assert (done.given, done.arrivals, done.round) == (0, 0, 2)
    assert (await desk.store.pulse(desk.node)).granted == before


async def test_a_cap_that_is_lowered_in_between_holds(desk: Desk) -> None:
    done = await desk.round(lambda: desk.other.transact(set_limits, [Limit(name=GLOBAL, cap=1)]))
    assert done.given == 1
    assert len([it for it in await desk.store.queued() if it.node_id is not None]) == 1


async def test_a_node_that_is_drained_in_between_is_given_nothing(desk: Desk) -> None:
    done = await desk.round(lambda: desk.other.transact(drain, [Drain(name="n1")]))
    assert done.given == 0
    assert {it.state for it in await desk.store.queued()} == {"ready"}


async def test_a_node_that_leaves_in_between_is_given_nothing(desk: Desk) -> None:
    """Nobody would look for items of a node that is gone."""
    second = await a_node(desk.store, name="n2", seats=500)  # it has the most free seats
    await assign(desk.other, an_assignment(3))
    done = await desk.round(lambda: desk.other.transact(leave, second))
    assert done.given == 5
    assert {it.node_id for it in await desk.store.queued()} == {desk.node}


async def test_a_node_that_is_given_up_in_between_is_given_nothing(desk: Desk) -> None:
    second = await a_node(desk.store, name="n2", seats=500)

    async def give_up() -> None:
        await desk.other.renew(second, lease_s=-60.0, busy=0.0)
        assert await desk.other.transact(rescue, second, 2, [], rule=Advance(), margin_s=1.0)

    assert (await desk.round(give_up)).given == 2
    assert {it.node_id for it in await desk.store.queued()} == {desk.node}


async def test_a_round_of_another_node_in_between_counts(desk: Desk) -> None:
    second, board = await a_node(desk.store, name="n2", group="gpu"), Rounds()
    await desk.store.transact(set_limits, [Limit(name=GLOBAL, cap=1)])
    await desk.round()
    (grant,) = [grant for node in (desk.node, second) for grant in await desk.store.granted(node, 0)]
    await finish(desk.store, [an_end(grant.items[0])])

    async def give_another() -> None:
        urgent = an_assignment(1, group="gpu", start_at=await desk.other.now() - timedelta(hours=1))
        await assign(desk.other, urgent)
        assert (await dispatch(desk.other, second, board, batch_max=100)).given == 1

    done = await desk.round(give_another)
    assert (done.given, done.took_over) == (0, True)
    assert len([it for it in await desk.store.queued() if it.node_id is not None]) == 1


async def test_an_item_that_is_cancelled_in_between_is_not_given(desk: Desk) -> None:
    run = await assigned(desk.store, 1)
    done = await desk.round(lambda: desk.other.transact(cancel, [run.id], rule=Advance()))
    assert done.given == 2
    granted = [it for grant in await desk.store.granted(desk.node, 1) for it in grant.items]
    assert run.id not in {it.run_id for it in granted}
    assert len(granted) == 2


async def test_what_arrives_in_between_is_learned_by_the_next_round(desk: Desk) -> None:
    assert (await desk.round(lambda: assign(desk.other, an_assignment(3)))).given == 2
    assert (await desk.round()).given == 3


async def test_a_write_that_loses_a_race_is_made_again_and_forgets_nothing(desk: Desk) -> None:
    class Deadlock(Exception):
        sqlstate = "40P01"

    async def lose() -> None:
        raise OperationalError("a round", {}, Deadlock())

    assert (await desk.round(lose)).given == 2
    assert {it.node_id for it in await desk.store.queued()} == {desk.node}


async def test_a_board_with_a_rate_is_used_under_the_lock(desk: Desk) -> None:
    await desk.store.transact(set_limits, [Limit(name="quota:acme/default", rate=Rate(max=1, period_s=60))])
    await desk.round()
    assert desk.board.is_rated
    assert len([it for it in await desk.store.queued() if it.node_id is not None]) == 1


async def test_the_start_of_an_item_that_brings_the_first_rate_is_remembered(desk: Desk) -> None:
    await desk.round()
    assert not desk.board.is_rated
    job = await a_due_job(desk.store, rate=Rate(max=1, period_s=3600.0))
    await desk.store.transact(fire, [job.id], Fire())
    assert (await desk.round()).given == 1
    known = await desk.store.look(all_limits)
    assert [len(limit.recent) for limit in known if limit.name == f"job:{job.id}"] == [1]


UNCOMPARED = [
    ("AND changes = $3", "AND $3 IS NOT NULL", test_a_cap_that_is_lowered_in_between_holds),
    ("AND changes = $3", "AND $3 IS NOT NULL", test_a_node_that_is_drained_in_between_is_given_nothing),
    ("AND changes = $3", "AND $3 IS NOT NULL", test_a_node_that_leaves_in_between_is_given_nothing),
    ("AND changes = $3", "AND $3 IS NOT NULL", test_a_node_that_is_given_up_in_between_is_given_nothing),
    (
        "AND holder = $1 AND epoch = $2 AND changes = $3 AND round = $6",
        "AND $2 + $3 + $6 IS NOT NULL",
        test_a_round_of_another_node_in_between_counts,
    ),
    ("OR given = $14", "OR $14 IS NOT NULL", test_an_item_that_is_cancelled_in_between_is_not_given),
]


@pytest.mark.parametrize(("compared", "not_compared", "test"), UNCOMPARED)
async def test_a_write_that_compares_less_is_caught(
    compared: str, not_compared: str, test: Callable[[Desk], Awaitable[None]], desk: Desk
) -> None:
    casted = re.sub(r"\$(2|3|6|14)\b", r"$\1::bigint", not_compared)
    assert compared in unlocked._WRITE
    with patch.object(unlocked, "_WRITE", unlocked._WRITE.replace(compared, casted)), pytest.raises(AssertionError):
        await test(desk)
