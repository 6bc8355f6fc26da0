"""The rescuer when the store's clock is set back: it waits as long as always, by its own clock, and no longer."""

from __future__ import annotations

from datetime import datetime, timedelta

from rota.clock import SystemClock
from rota.config import LeaseConfig
from rota.core.dispatch.board import Rounds
from rota.loops.loader import Loader
from rota.loops.member import Identity
from rota.loops.rescuer import Rescuer
from rota.model.states import ItemState
from rota.storage.memory import MemoryStore
from rota.transactions.round import dispatch
from tests.factories import a_node, assigned

LEASE_S, MARGIN_S = 10.0, 1.0


class SteppingClock(SystemClock):
    """A clock whose wall can be set back; the other goes on."""

    def __init__(self) -> None:
        self._passed_s = 0.0
        self._off = timedelta()
        self._began = super().wall()

    def wall(self) -> datetime:
        return self._began + timedelta(seconds=self._passed_s) + self._off

    def monotonic(self) -> float:
        return self._passed_s

    def pass_(self, seconds: float) -> None:
        self._passed_s += seconds

    def set_back(self, seconds: float) -> None:
        self._off -= timedelta(seconds=seconds)


async def test_a_dead_node_is_rescued_in_time_though_the_clock_was_set_back() -> None:
    clock = SteppingClock()
    store = MemoryStore(clock, actor="test")
    dead = await a_node(store, "dead", lease_s=LEASE_S)
    await assigned(store, 1)
    await dispatch(store, dead, Rounds(), batch_max=1)
    alive = await a_node(store, "alive", lease_s=LEASE_S)
    rescuer = Rescuer(
        store, clock, LeaseConfig(lease_s=LEASE_S, margin_s=MARGIN_S), Identity("me"), None, Loader(store)
    )
    await rescuer.once()
    clock.set_back(3600)
    for _ in range(21):
        clock.pass_(0.5)
        await store.renew(alive, lease_s=LEASE_S, busy=0)
        await rescuer.once()
    assert [it.state for it in await store.queued()] == [ItemState.ASSIGNED], "a step must not hasten a rescue"
    clock.pass_(0.6)
    await rescuer.once()
    assert [it.state for it in await store.queued()] == [ItemState.READY], "a step must not delay it by an hour"
    assert [it.joined.name for it in (await store.nodes()).nodes] == ["alive"]
