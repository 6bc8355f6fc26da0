"""What people ask of the cluster, over every coordinator, by a client that never joins: they have no session."""

from __future__ import annotations

from rota.clock import SystemClock
from rota.control import Control
from rota.coordinators.recipes import read_handover
from rota.core.define import Apply
from rota.model.cluster import Handover, Peer, Placement
from rota.model.value import encode
from rota.ports import Coordinator
from rota.storage.memory import MemoryStore
from rota.transactions.change import change
from tests.contract.coordinator.conftest import Clients
from tests.factories import a_definition


async def scheduler(coordinator: Coordinator, name: str, jobs: range) -> None:
    told = Peer(name=name, incarnation=name, placement=Placement.CLAIM)
    await coordinator.claim({f"live/{name}": encode(told), **{f"jobs/{job_id}": name for job_id in jobs}})


async def test_a_person_sees_moves_and_releases_jobs_without_a_session(
    client: Clients, a: Coordinator, b: Coordinator
) -> None:
    store, desk = MemoryStore(SystemClock(), actor="test"), await client()
    control = Control(store, SystemClock(), coordinator=desk)
    definitions = tuple(a_definition() for _ in range(6))
    await store.transact(change, [it.full_name for it in definitions], Apply(definitions=definitions))
    assert (await control.cluster.facts()).peers == ()
    await scheduler(a, "a", range(1, 7))
    await scheduler(b, "b", range(0))
    seen = await control.cluster.facts()
    assert (seen.placement, seen.held, seen.limits, seen.unowned) == (Placement.CLAIM, {"a": 6}, {"a": 7, "b": 7}, ())
    _, plan = await control.cluster.rebalance()
    (entry,) = await a.read("handover")
    assert (entry.name, read_handover(entry)) == ("a", {it.job_id: Handover(to="b") for it in plan.shifts})
    assert len(plan.shifts) == 3
    assert (await control.cluster.claim(definitions[5].full_name, node="b")).giver == "a"
    assert len((await control.cluster.facts()).going) == 4
    assert (await control.cluster.release(definitions[0].full_name)).owner == "a"
    assert (await control.cluster.facts()).unowned == (1,)
    await control.nodes.drain(["b"])
    assert await a.get("notice/drain") is not None
    assert desk.session is None
