"""When the dispatcher makes a round: on the memory store, asked by hand."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from rota.clock import SystemClock
from rota.config import DispatchConfig
from rota.core.dispatch.board import Rounds
from rota.loops.dispatcher import Dispatcher
from rota.loops.member import Identity
from rota.model.work import GLOBAL, Limit
from rota.storage.memory import MemoryStore
from rota.transactions.assign import assign
from rota.transactions.finish import finish
from rota.transactions.limits import set_limits
from rota.transactions.round import dispatch, make_round
from tests.factories import a_node, an_assignment, an_end


class Told(MemoryStore):
    """Says that seats were given back while a round is on its way."""

    dispatcher: Dispatcher | None = None
    rounds = 0

    async def transact(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        done = await super().transact(work, *args, **kwargs)
        if work is make_round:
            self.rounds += 1
            if self.dispatcher is not None:
                self.dispatcher.freed()
        return done


async def a_dispatcher(cap: int) -> tuple[Told, Dispatcher, int]:
    store, identity = Told(SystemClock(), actor="test"), Identity("n")
    await store.transact(set_limits, [Limit(name=GLOBAL, cap=cap), Limit(name="quota:acme/default")])
    identity.id = await a_node(store, seats=10)
    dispatcher = Dispatcher(store, SystemClock(), DispatchConfig(), identity, None, hears=True)
    await dispatcher.once()
    return store, dispatcher, identity.id


async def test_a_seat_that_nobody_waits_for_is_no_reason_to_hurry() -> None:
    store, dispatcher, _ = await a_dispatcher(cap=5)
    await assign(store, an_assignment(2))
    dispatcher.wake()
    await dispatcher.once()
    dispatcher._woken = False
    dispatcher.freed()
    assert not dispatcher._woken


async def test_a_seat_that_something_waits_for_is_filled_at_once() -> None:
    store, dispatcher, node_id = await a_dispatcher(cap=1)
    await assign(store, an_assignment(2))
    dispatcher.wake()
    await dispatcher.once()
    dispatcher._woken = False
    (grant,) = await store.granted(node_id, 0)
    await finish(store, [an_end(grant.items[0])])
    dispatcher.freed()
    assert dispatcher._woken
    await dispatcher.once()
    assert dispatcher.given == 2


async def test_a_seat_that_is_given_back_during_a_round_is_not_forgotten() -> None:
    store, dispatcher, _ = await a_dispatcher(cap=1)
    await assign(store, an_assignment(2))
    store.dispatcher = dispatcher
    dispatcher.wake()
    assert await dispatcher.once() == 0.0
    rounds = store.rounds
    store.dispatcher = None
    assert await dispatcher.once() > 0.0
    assert store.rounds == rounds + 1


async def test_what_the_rounds_of_another_node_will_find_due_is_no_reason_to_hurry() -> None:
    """A node whose place another has taken would ask the store without a pause, until it makes a round again."""
    store, dispatcher, _ = await a_dispatcher(cap=5)
    soon = datetime.now(UTC) + timedelta(seconds=1)
    await assign(store, an_assignment(1, start_at=soon))
    dispatcher.wake()
    assert await dispatcher.once() <= 1
    await dispatch(store, await a_node(store, seats=10), Rounds(), batch_max=10)
    await dispatcher.once()  # and learns of it
    await asyncio.sleep((soon - datetime.now(UTC)).total_seconds() + 0.01)
    rounds = store.rounds
    assert await dispatcher.once() > 0.1
    assert store.rounds == rounds, "void: it made a round"
