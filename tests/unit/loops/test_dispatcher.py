"""When the dispatcher makes a round: on the memory store, asked by hand."""

import asyncio
from datetime import UTC, datetime, timedelta

from rota.clock import SystemClock
from rota.config import DispatchConfig
from rota.core.dispatch.board import Rounds
from rota.loops.dispatcher import Dispatcher
from rota.loops.identity import Identity
from rota.model.dispatch import Board, Round
from rota.model.work import GLOBAL, Limit
from rota.storage.memory import MemoryStore
from tests.factories import a_node, an_assignment, an_end


class Told(MemoryStore):
    """Says that seats were given back while a round is on its way."""

    dispatcher: Dispatcher | None = None
    rounds = 0

    async def dispatch(self, node_id: int, board: Board, *, batch_max: int) -> Round:
        self.rounds += 1
        done = await super().dispatch(node_id, board, batch_max=batch_max)
        if self.dispatcher is not None:
            self.dispatcher.freed()
        return done


async def a_dispatcher(cap: int) -> tuple[Told, Dispatcher, int]:
    store, identity = Told(SystemClock(), actor="test"), Identity("n")
    await store.set_limits([Limit(name=GLOBAL, cap=cap), Limit(name="quota:acme/default")])
    identity.id = await a_node(store, seats=10)
    dispatcher = Dispatcher(store, SystemClock(), DispatchConfig(), identity, None, hears=True)
    await dispatcher.once()
    return store, dispatcher, identity.id


async def test_a_seat_that_nobody_waits_for_is_no_reason_to_hurry() -> None:
    store, dispatcher, _ = await a_dispatcher(cap=5)
    await store.assign(an_assignment(2))
    dispatcher.wake()
    await dispatcher.once()
    dispatcher._woken = False
    dispatcher.freed()
    assert not dispatcher._woken


async def test_a_seat_that_something_waits_for_is_filled_at_once() -> None:
    store, dispatcher, node_id = await a_dispatcher(cap=1)
    await store.assign(an_assignment(2))
    dispatcher.wake()
    await dispatcher.once()
    dispatcher._woken = False
    (grant,) = await store.granted(node_id, 0)
    await store.finish([an_end(grant.items[0])])
    dispatcher.freed()
    assert dispatcher._woken
    await dispatcher.once()
    assert dispatcher.given == 2


async def test_a_seat_that_is_given_back_during_a_round_is_not_forgotten() -> None:
    store, dispatcher, _ = await a_dispatcher(cap=1)
    await store.assign(an_assignment(2))
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
    await store.assign(an_assignment(1, start_at=soon))
    dispatcher.wake()
    assert await dispatcher.once() <= 1
    await store.dispatch(await a_node(store, seats=10), Rounds(), batch_max=10)
    await dispatcher.once()  # and learns of it
    await asyncio.sleep((soon - datetime.now(UTC)).total_seconds() + 0.01)
    rounds = store.rounds
    assert await dispatcher.once() > 0.1
    assert store.rounds == rounds, "void: it made a round"
