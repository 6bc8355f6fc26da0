"""The loops of an executing node, on the memory store: what must survive lost answers, rejoining and large batches."""

from datetime import UTC, datetime

from rota.backends.memory import MemoryStore
from rota.clock import SystemClock
from rota.config import LeaseConfig
from rota.core.dispatch import Rounds
from rota.loops.identity import Identity
from rota.loops.live import Live
from rota.loops.loader import Loader
from rota.loops.member import Member
from rota.model.dispatch import Arrival, ArrivalKind, Ready
from rota.model.work import Attempt, Lane, Limit
from tests.factories import a_new_node, a_node, an_assignment

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def an_attempt(item_id: int, attempt: int) -> Attempt:
    return Attempt(
        item_id=item_id,
        attempt=attempt,
        token=attempt,
        run_id=1,
        assigned_at=NOW,
        name="x",
        tenant="x",
        task="main",
        runner="python",
        idempotency_key="k",
    )


def a_member(store: MemoryStore, name: str = "twin") -> Member:
    return Member(
        store,
        SystemClock(),
        LeaseConfig(),
        Identity(name),
        None,
        describe=lambda token: a_new_node(name, seats=0),
    )


async def test_a_batch_of_more_assignments_than_are_remembered_is_loaded_whole() -> None:
    store = MemoryStore(SystemClock(), actor="test")
    await store.set_limits([Limit(name="global", cap=5000), Limit(name="quota:acme/default")])
    node_id = await a_node(store, seats=5000)
    loader = Loader(store)
    for _ in range(1100):
        await store.assign(an_assignment(1))
    first = await store.dispatch(node_id, Rounds(), batch_max=5000)
    assert len(await loader.attempts([first.grants[node_id]], 1)) == 1100


async def test_an_assignment_that_is_pushed_out_by_its_own_batch_is_still_loaded() -> None:
    store = MemoryStore(SystemClock(), actor="test")
    await store.set_limits([Limit(name="global", cap=5000), Limit(name="quota:acme/default")])
    node_id = await a_node(store, seats=5000)
    loader, board = Loader(store), Rounds()
    grants = []
    for _ in range(1001):
        await store.assign(an_assignment(1))
        done = await store.dispatch(node_id, board, batch_max=10)
        grants.append(done.grants[node_id])
        await loader.attempts(grants[-1:], 1)
    assert len(await loader.attempts([grants[0], grants[1], grants[-1]], 1)) == 3


def test_the_late_answer_about_an_attempt_leaves_the_next_one_alone() -> None:
    live = Live()
    first, second = an_attempt(7, 1), an_attempt(7, 2)
    live.add([first])
    live.add([second])
    live.settled([first])
    assert live.attempts == {7: second}
    assert not live.idle.is_set()
    live.settled([second])
    assert live.idle.is_set()


async def test_a_node_whose_name_was_taken_does_not_take_it_back_while_the_other_lives() -> None:
    store = MemoryStore(SystemClock(), actor="test")
    old, new = a_member(store), a_member(store)
    await old.once()
    await new.once()
    await old.once()  # its renewal is refused
    await old.once()
    assert old._identity.id is None
    await new.once()
    assert new._identity.id is not None
    assert [node.id for node in (await store.nodes()).nodes if node.id == new._identity.id] == [new._identity.id]
    await store.leave(new._identity.id)
    await old.once()
    assert old._identity.id is not None


async def test_an_incarnation_that_joins_while_its_node_drains_takes_nothing() -> None:
    store = MemoryStore(SystemClock(), actor="test")
    member = a_member(store)
    member.draining = True
    await member.once()
    (node,) = (await store.nodes()).nodes
    assert node.state == "draining"


def test_what_finds_no_executor_is_looked_at_again_by_itself() -> None:
    rounds = Rounds()
    rounds.lanes = {1: Lane(tenant="a")}
    rounds.take([Arrival(ArrivalKind.READY, ready=[Ready(1, 0, 0, 1, 0, 0)])])
    plan = rounds.plan(5_000_000, [], 10)
    assert (list(plan.given), plan.next_us) == ([], 6_000_000)


async def test_what_is_in_hand_does_not_begin_again() -> None:
    """Its grant may have come both ways."""
    live = Live()
    one, again = an_attempt(1, 1), an_attempt(1, 2)
    assert live.add([one, one]) == [one]
    assert live.add([one]) == []
    assert live.add([again]) == [again]
    assert live.add([one]) == []
