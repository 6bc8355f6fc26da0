"""The loops of an executing node, on the memory store: what must survive lost answers, rejoining and large batches."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rota.cli.serve import Stopping, stop_by_signal
from rota.clock import SystemClock
from rota.config import ExecutorConfig, LeaseConfig, PlacementConfig
from rota.coordinators.memory import MemoryCoordinator
from rota.core.dispatch.board import Rounds
from rota.errors import InvalidInput
from rota.execution.log_directory import DirectoryLogs
from rota.execution.runner import ProcessRunner, RunnerSettings
from rota.loops.executor import Executor
from rota.loops.in_hand import AttemptsInHand
from rota.loops.loader import Loader
from rota.loops.member import Identity, Member
from rota.loops.node_process import Execution, NodeProcess
from rota.loops.placer.participation import Participation, participate
from rota.model.cluster import Peer
from rota.model.dispatch import Arrival, ArrivalKind, Ready
from rota.model.work import Lane, Limit
from rota.rest.door import Door, app
from rota.storage.memory import MemoryStore
from rota.transactions.assign import assign
from rota.transactions.limits import set_limits
from rota.transactions.members import join, leave
from rota.transactions.round import dispatch
from tests.factories import a_new_node, a_node, an_assignment, an_attempt

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_member(store: MemoryStore, name: str = "twin", *, is_gone: bool = False) -> Member:
    return Member(
        store,
        SystemClock(),
        LeaseConfig(),
        Identity(name),
        None,
        describe=lambda token: a_new_node(name, seats=0),
        is_gone=lambda place: is_gone,
    )


async def test_a_batch_of_more_assignments_than_are_remembered_is_loaded_whole() -> None:
    store = MemoryStore(SystemClock(), actor="test")
    await store.transact(set_limits, [Limit(name="global", cap=5000), Limit(name="quota:acme/default")])
    node_id = await a_node(store, seats=5000)
    loader = Loader(store)
    for _ in range(1100):
        await assign(store, an_assignment(1))
    first = await dispatch(store, node_id, Rounds(), batch_max=5000)
    assert len((await loader.attempts([first.grants[node_id]])).attempts) == 1100


async def test_an_assignment_that_is_pushed_out_by_its_own_batch_is_still_loaded() -> None:
    store = MemoryStore(SystemClock(), actor="test")
    await store.transact(set_limits, [Limit(name="global", cap=5000), Limit(name="quota:acme/default")])
    node_id = await a_node(store, seats=5000)
    loader, board = Loader(store), Rounds()
    grants = []
    for _ in range(1001):
        await assign(store, an_assignment(1))
        done = await dispatch(store, node_id, board, batch_max=10)
        grants.append(done.grants[node_id])
        await loader.attempts(grants[-1:])
    assert len((await loader.attempts([grants[0], grants[1], grants[-1]])).attempts) == 3


def test_the_late_answer_about_an_attempt_leaves_the_next_one_alone() -> None:
    live = AttemptsInHand()
    first, second = an_attempt(7, 1, token=1), an_attempt(7, 2, token=2)
    live.add([first])
    live.add([second])
    live.settled([first])
    assert live.attempts == {7: second}
    assert not live.idle.is_set()
    live.settled([second])
    assert live.idle.is_set()


async def test_a_node_whose_name_was_taken_does_not_take_it_back_while_the_other_lives() -> None:
    store = MemoryStore(SystemClock(), actor="test")
    old, new = a_member(store), a_member(store, is_gone=True)
    await old.once()
    await new.once()
    await old.once()  # its renewal is refused
    await old.once()
    assert old.identity.id is None
    await new.once()
    assert new.identity.id is not None
    assert [node.id for node in (await store.nodes()).nodes if node.id == new.identity.id] == [new.identity.id]
    await store.transact(leave, new.identity.id)
    await old.once()
    assert old.identity.id is not None


async def test_a_newcomer_waits_while_a_node_of_its_name_may_be_alive() -> None:
    store = MemoryStore(SystemClock(), actor="test")
    first, second = a_member(store), a_member(store)
    await first.once()
    with capture_logs() as lines:
        for _ in range(3):
            await second.once()
    assert second.identity.id is None
    assert [line["event"] for line in lines] == ["node.name_held"], "told once"
    await first.once()
    assert first.identity.id is not None, "its work goes on"
    await store.transact(leave, first.identity.id)
    await second.once()
    assert second.identity.id is not None


async def test_a_node_whose_runner_cannot_open_closes_its_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    store, live, identity = MemoryStore(SystemClock(), actor="test"), AttemptsInHand(), Identity("a")
    runner = ProcessRunner(
        RunnerSettings(node="a", state_dir=str(tmp_path / "state")), DirectoryLogs(tmp_path / "logs")
    )
    executor = Executor(store, SystemClock(), ExecutorConfig(), identity, runner, live, Loader(store))
    door = Door(app("a", "1", lambda: None), "127.0.0.1:0")
    host = NodeProcess(
        store=store,
        identity=identity,
        member=a_member(store, "a"),
        firing=(),
        working=(),
        execution=Execution(runner=runner, in_hand=live, executor=executor),
        door=door,
    )
    with pytest.raises(InvalidInput, match=r"^TMPDIR: "):
        await host.run()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*door.address.split(":"))


def an_executing_host(
    store: MemoryStore, folder: Path, part: Participation | None = None
) -> tuple[NodeProcess, Execution]:
    identity, live = Identity("a"), AttemptsInHand()
    runner = ProcessRunner(RunnerSettings(node="a", state_dir=str(folder / "state")), DirectoryLogs(folder / "logs"))
    executor = Executor(store, SystemClock(), ExecutorConfig(), identity, runner, live, Loader(store))
    member = Member(
        store, SystemClock(), LeaseConfig(), identity, runner, describe=lambda token: a_new_node("a", seats=10)
    )
    execution = Execution(runner=runner, in_hand=live, executor=executor)
    host = NodeProcess(
        store=store,
        identity=identity,
        member=member,
        firing=(),
        working=[executor],
        execution=execution,
        participation=part,
    )
    return host, execution


async def test_a_node_told_to_stop_while_a_round_gives_it_work_says_that_it_waits_for_it(tmp_path: Path) -> None:
    """It was committed as given, and the node has not read it yet."""
    store = MemoryStore(SystemClock(), actor="test")
    await store.transact(set_limits, [Limit(name="global", cap=10), Limit(name="quota:acme/default")])
    host, execution = an_executing_host(store, tmp_path)
    stopping, said = Stopping(), asyncio.Queue[str]()
    stop_by_signal(host, stopping, say=said.put_nowait)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(host.run())
        await host.member.joined.wait()
        await execution.executor.all_in_hand()
        assert host.identity.id is not None
        run = await assign(store, an_assignment(1))
        await dispatch(store, host.identity.id, Rounds(), batch_max=10)
        assert not host.in_hand
        stopping.stop()
        assert said.empty()
        assert await said.get() == f"stopping: waits for run {run.id} (acme) to end; once more ends it at once"
        execution.in_hand.settled(list(host.in_hand))
    assert said.empty(), "it is said once"


class SlowToLetIn(MemoryStore):
    """Takes its time to let a node join."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), actor="test")
        self.answer = asyncio.Event()

    async def transact(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if work is join:
            await self.answer.wait()
        return await super().transact(work, *args, **kwargs)


class SlowToClose(MemoryCoordinator):
    """Takes its time to say goodbye."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store.realm, SystemClock(), ttl_s=60.0)
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    async def close(self) -> None:
        self.asked.set()
        await self.answer.wait()


async def test_a_node_told_to_stop_before_it_has_joined_ends_even_if_it_joins_meanwhile(tmp_path: Path) -> None:
    store = SlowToLetIn()
    coordinator = SlowToClose(store)
    peer = Peer(name="a", incarnation="1", address="127.0.0.1:7700")
    part = participate(store, coordinator, SystemClock(), PlacementConfig(), lambda: peer)
    host, _ = an_executing_host(store, tmp_path, part)
    host.stop()
    async with asyncio.timeout(15), asyncio.TaskGroup() as group:
        group.create_task(host.run())
        await coordinator.asked.wait()
        store.answer.set()
        await host.member.joined.wait()
        coordinator.answer.set()
    assert [node.state for node in (await store.nodes()).nodes] == []


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
    live = AttemptsInHand()
    one, again = an_attempt(1, 1, token=1), an_attempt(1, 2, token=2)
    assert live.add([one, one]) == [one]
    assert live.add([one]) == []
    assert live.add([again]) == [again]
    assert live.add([one]) == []
