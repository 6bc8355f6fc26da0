"""A newer release has written a word that this one does not know, into any table: the rest goes on, and it is said what
was left out. The store in memory holds values of one process, so there is nothing in it that could be newer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection, String, Text, delete, func, select, update
from structlog.testing import capture_logs

from rota.clock import SystemClock
from rota.config import LeaseConfig, SchedulerConfig
from rota.control import Control
from rota.core.advance import Advance
from rota.core.dispatch.board import Rounds
from rota.core.fire import Fire
from rota.errors import Unreadable
from rota.loops.loader import Loader
from rota.loops.member import Identity
from rota.loops.rescuer import Rescuer
from rota.loops.scheduler import Scheduler
from rota.model.alarm import Alarm, AlarmKind, AlarmRule, Channel, ChannelKind
from rota.model.cluster import Drain, Role
from rota.model.dispatch import Granted
from rota.model.job import Job, Overlap, OverlapPolicy
from rota.model.plan import JobFilter, RunFilter
from rota.model.run import Run
from rota.model.states import RunState
from rota.model.value import decode, encode
from rota.model.work import Limit
from rota.ports import Store
from rota.storage.sql import schema
from rota.storage.sql.store import SqlStore
from rota.transactions import finish as finish_module
from rota.transactions import rescue as rescue_module
from rota.transactions.alarms import raise_alarms, set_alarm_rule
from rota.transactions.assign import close_runs
from rota.transactions.cancel import cancel
from rota.transactions.change import change
from rota.transactions.finish import settle_runs
from rota.transactions.fire import fire
from rota.transactions.limits import set_limits
from rota.transactions.members import drain, leave
from rota.transactions.round import dispatch
from rota.wiring import own_coordinator
from tests.contract.conftest import BACKENDS
from tests.factories import LEASE_S, a_due_job, a_node, allow, an_end, assigned, given

databases = pytest.mark.parametrize("another", [it for it in BACKENDS if it != "memory"], indirect=True)
sqlite_and_nightly_others = pytest.mark.parametrize(
    "another",
    [pytest.param(it, marks=[] if it == "sqlite" else [pytest.mark.nightly]) for it in BACKENDS if it != "memory"],
    indirect=True,
)

NEWER = "newer-word"
OLD, NEW = "0.0.1", "99.0.0"

WORDS: dict[str, tuple[str, ...]] = {
    "rota_job": ("definition", "state", "source"),
    "rota_job_version": ("definition",),
    "rota_run": ("cause", "state", "reason", "work", "params"),
    "rota_item": ("state",),
    "rota_queue": ("state",),
    "rota_lane": ("spec",),
    "rota_limit": ("recent",),
    "rota_arrival": ("kind", "data"),
    "rota_grant": ("data",),
    "rota_attempt": ("outcome",),
    "rota_node": ("state", "joined"),
    "rota_drained": ("roles",),
    "rota_event": ("data",),
    "rota_alarm_rule": ("data",),
    "rota_alarm": ("data",),
}
"""Every column whose text has a meaning to rota."""
PLAIN = frozenset(
    {
        "name",
        "tenant",
        "project",
        "digest",
        "actor",
        "key",
        "overlap_key",
        "task",
        "number",
        "info",
        "result",
        "message",
    }
    | {"node", "group_name", "kind", "rule", "answer", "value", "folder", "session_id", "id", "checksum", "holder"}
)
"""Names and texts of people, which every release takes as they are."""


class World(NamedTuple):
    store: SqlStore
    good: Job
    bad: Job
    node_id: int


class Hurried(SystemClock):
    """A clock that shows a time which has not passed yet."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


@pytest.fixture
async def world(store: Store) -> World:
    """Two jobs of which each has a run in hand, an assignment, two nodes, and one of everything else."""
    assert isinstance(store, SqlStore)
    await store.transact(
        set_limits,
        [Limit(name="global", cap=100), Limit(name="quota:acme/default"), Limit(name="quota:default/default")],
    )
    good = await a_due_job(store, name="good", overlap=allow())
    bad = await a_due_job(store, name="bad", overlap=allow())
    node_id = await a_node(store, "node", version=OLD)
    await a_node(store, "other", seats=0, version=OLD)
    await store.transact(drain, [Drain(name="other", roles=(Role.EXECUTOR,))])
    await store.transact(
        set_alarm_rule, AlarmRule(name="ops", channel=Channel(kind=ChannelKind.MAIL, to=("ops@example.org",)))
    )
    await store.transact(raise_alarms, [Alarm(key="k", kind=AlarmKind.RUN_FAILED, at=await store.now())])
    return World(store, good, bad, node_id)


async def spoil(world: World, table: str, column: str, where: Any = None) -> Any:
    """Write a word that nobody knows into a column, of all rows or of some; returns one former value."""
    t = schema.metadata.tables[table]
    c = t.c[column]

    def work(conn: Connection) -> Any:
        wanted = select(c) if where is None else select(c).where(where)
        was = conn.scalars(wanted).first()
        text = (
            NEWER
            if column in ("state", "cause", "reason", "kind", "outcome", "roles")
            else f'{{"word": "{NEWER}", "tasks": 1}}'
        )
        changed = update(t).values({column: text})
        conn.execute(changed if where is None else changed.where(where))
        return was

    return await world.store._db.write(work)


async def put_back(world: World, table: str, column: str, where: Any, value: Any) -> None:
    changed = update(schema.metadata.tables[table]).where(where).values({column: value})
    await world.store._db.write(lambda conn: conn.execute(changed))


def test_every_column_with_a_meaning_is_tried() -> None:
    texts = {
        (table.name, column.name)
        for table in schema.metadata.tables.values()
        for column in table.columns
        if isinstance(column.type, String | Text) and column.name not in PLAIN
    }
    tried = {(table, column) for table, columns in WORDS.items() for column in columns}
    assert texts - tried == set()


@sqlite_and_nightly_others
@pytest.mark.parametrize(("table", "column"), [(table, it) for table, columns in WORDS.items() for it in columns])
async def test_a_newer_word_in_any_table_fails_no_verb(world: World, table: str, column: str) -> None:
    store = world.store
    await store.transact(fire, [world.good.id], Fire())
    run = await assigned(store, 2)
    (first, *_) = await given(store, world.node_id)
    await finish_module.finish(store, [an_end(first)], rule=Advance())
    await store.transact(fire, [world.bad.id], Fire())
    await assigned(store, 1)
    await spoil(world, table, column)
    members = await store.nodes(gone=True)
    assert [it.joined.name for it in members.nodes] == ["node", "other"]
    await store.jobs(JobFilter())
    await store.runs(RunFilter())
    await store.runs_of([run.id])
    await store.items(run.id)
    await store.attempts(run.id)
    await store.queued(node_id=world.node_id)
    await store.granted(world.node_id, 0)
    await store.loads([first.item_id], [first.run_id])
    await store.definitions([(world.good.id, 1), (world.bad.id, 1)])
    await store.limits()
    await store.drains()
    await store.holds()
    await store.events()
    await store.statistics()
    await store.alarm_rules()
    await store.alarms()
    await store.deliveries()
    await store.upcoming(within_s=10, limit=100)
    await store.transact(fire, [world.good.id, world.bad.id], Fire())
    await close_runs(store, limit=10)
    await settle_runs(store, Advance(), limit=10)
    board = Rounds()
    for _ in range(2):
        await dispatch(store, world.node_id, board, batch_max=10)
    await store.transact(leave, world.node_id)


@databases
async def test_a_job_that_cannot_be_read_is_named_and_the_others_are_listed_and_fired(world: World) -> None:
    await spoil(world, "rota_job", "definition", schema.job.c.id == world.bad.id)
    with capture_logs() as lines:
        for _ in range(2):
            assert [job.id for job in await world.store.jobs(JobFilter())] == [world.good.id]
    assert [line["record"] for line in lines] == [f"job {world.bad.id} (default/default/bad)"], "told once"
    assert list(world.store.unread) == [f"job {world.bad.id} (default/default/bad)"]
    done = await world.store.transact(fire, [world.good.id, world.bad.id], Fire())
    assert [run.job_id for run in done.runs] == [world.good.id]
    assert done.unread == (world.bad.id,)
    with pytest.raises(Unreadable, match=rf"job {world.bad.id} \(default/default/bad\) cannot be read by this release"):
        await world.store.transact(change, [world.bad.definition.full_name], Fire())


@databases
async def test_ends_are_written_although_one_job_cannot_be_read_and_a_reader_settles_its_run(world: World) -> None:
    store = world.store
    fired = await store.transact(fire, [world.good.id, world.bad.id], Fire())
    runs = {run.job_id: run.id for run in fired.runs}
    granted = await given(store, world.node_id)
    theirs = schema.job.c.id == world.bad.id
    was = await spoil(world, "rota_job", "definition", theirs)
    done = await finish_module.finish(store, [an_end(it) for it in granted], rule=Advance())
    assert not done.stale
    assert await store.queued() == ()
    states = {run.job_id: run.state for run in await store.runs_of(list(runs.values()))}
    assert states == {world.good.id: RunState.SUCCEEDED, world.bad.id: RunState.RUNNING}
    assert (await settle_runs(store, Advance(), limit=10)).count == 0, "nobody can"
    await put_back(world, "rota_job", "definition", theirs, was)
    assert (await settle_runs(store, Advance(), limit=10)).count == 1
    run = await store.run(runs[world.bad.id])
    assert run is not None
    assert run.state is RunState.SUCCEEDED
    assert (await settle_runs(store, Advance(), limit=10)).count == 0


class Turns(NamedTuple):
    """A run in hand, and a run of another job that waits under the same overlap key."""

    held: Granted
    waiting: Run


async def taking_turns(world: World) -> Turns:
    store, overlap = world.store, Overlap(policy=OverlapPolicy.QUEUE, key="one at a time")
    jobs = [await a_due_job(store, overlap=overlap) for _ in range(2)]
    first, second = [(await store.transact(fire, [job.id], Fire())).runs[0] for job in jobs]
    assert (first.state, second.state) == (RunState.RUNNING, RunState.WAITING)
    (held,) = await given(store, world.node_id)
    return Turns(held, second)


async def states_of(store: Store, turns: Turns) -> list[RunState]:
    return [run.state for run in await store.runs_of([turns.held.run_id, turns.waiting.id])]


async def finish(world: World, held: Granted) -> None:
    assert not (await finish_module.finish(world.store, [an_end(held)], rule=Advance())).stale


async def cancel_and_leave(world: World, held: Granted) -> None:
    assert (await world.store.transact(cancel, [held.run_id], rule=Advance())).asked == 1
    await world.store.transact(leave, world.node_id, rule=Advance())


async def rescue(world: World, held: Granted) -> None:
    lost = an_end(held, "lost", "failed", node_id=world.node_id)
    beat = next(it.beat for it in (await world.store.nodes()).nodes if it.id == world.node_id)
    assert await world.store.transact(
        rescue_module.rescue, world.node_id, beat, [lost], rule=Advance(), margin_s=0, seen_gone=True
    )


@databases
@pytest.mark.parametrize("end", [finish, cancel_and_leave, rescue])
@pytest.mark.parametrize(("table", "column"), [("rota_job_version", "definition"), ("rota_item", "state")])
async def test_an_end_is_written_although_the_run_that_waits_for_it_cannot_be_read(
    world: World, end: Callable[[World, Granted], Awaitable[None]], table: str, column: str
) -> None:
    store, turns = world.store, await taking_turns(world)
    theirs = {
        "rota_job_version": schema.job_version.c.job_id == turns.waiting.job_id,
        "rota_item": schema.item.c.run_id == turns.waiting.id,
    }[table]
    was = await spoil(world, table, column, theirs)
    await end(world, turns.held)
    assert await store.queued() == ()
    assert await states_of(store, turns) == [RunState.RUNNING, RunState.WAITING], "whoever can read both settles them"
    assert (await settle_runs(store, Advance(), limit=10)).count == 0
    await put_back(world, table, column, theirs, was)
    assert (await settle_runs(store, Advance(), limit=10)).count == 2
    first, second = await states_of(store, turns)
    assert not first.live
    assert second is RunState.RUNNING
    assert [it.run_id for it in await store.queued()] == [turns.waiting.id]


@databases
async def test_a_waiting_run_that_cannot_be_read_holds_up_no_other_key(world: World) -> None:
    store, turns = world.store, await taking_turns(world)
    (good,) = (await store.transact(fire, [world.good.id], Fire())).runs
    (granted,) = await given(store, world.node_id)
    await spoil(world, "rota_job_version", "definition", schema.job_version.c.job_id == turns.waiting.job_id)
    await finish_module.finish(store, [an_end(turns.held), an_end(granted)], rule=Advance())
    (run,) = await store.runs_of([good.id])
    assert run.state is RunState.SUCCEEDED


@databases
async def test_a_waiting_run_that_cannot_be_read_is_cancelled_while_another_runs(world: World) -> None:
    store, turns = world.store, await taking_turns(world)
    await spoil(world, "rota_job_version", "definition", schema.job_version.c.job_id == turns.waiting.job_id)
    assert (await store.transact(cancel, [turns.waiting.id], rule=Advance())).ended == 1
    assert await states_of(store, turns) == [RunState.RUNNING, RunState.CANCELLED]


@databases
async def test_a_scheduler_leaves_a_job_that_it_cannot_read_to_others(world: World) -> None:
    await spoil(world, "rota_job", "definition", schema.job.c.id == world.bad.id)
    scheduler = Scheduler(world.store, SystemClock(), SchedulerConfig(look_s=0.2))
    with capture_logs() as lines:
        await scheduler.once()
        await scheduler.once()
    assert scheduler.fired == 1
    said = [line for line in lines if line["event"] == "job.unreadable"]
    assert [line["job_id"] for line in said] == [world.bad.id]


@databases
async def test_each_dead_node_is_rescued_although_one_item_cannot_be_read(world: World) -> None:
    store = world.store
    second = await a_node(store, "second", lease_s=0.0, version=OLD)
    await store.transact(fire, [world.good.id, world.bad.id], Fire())
    granted = await given(store, world.node_id)
    await spoil(world, "rota_job_version", "definition", schema.job_version.c.job_id == world.bad.id)
    await store._db.write(lambda conn: conn.execute(update(schema.lease).values(until_at=0)))
    clock = Hurried()
    rescuer = Rescuer(store, clock, LeaseConfig(), Identity("rescuer"), None, Loader(store))
    await rescuer.once()
    clock.ahead_s = 2 * LEASE_S
    await rescuer.once()
    assert {it.id for it in (await store.nodes()).nodes}.isdisjoint({world.node_id, second})
    assert {it.item_id: str(it.state) for it in await store.queued()} == {it.item_id: "ready" for it in granted}


@databases
async def test_a_dead_node_with_nothing_but_unknown_items_is_told_once_and_given_up_when_they_are_gone(
    world: World,
) -> None:
    store, clock = world.store, Hurried()
    await store.transact(fire, [world.good.id], Fire())
    await given(store, world.node_id)
    await spoil(world, "rota_queue", "state")
    await store._db.write(lambda conn: conn.execute(update(schema.lease).values(until_at=0)))
    rescuer = Rescuer(store, clock, LeaseConfig(), Identity("rescuer"), None, Loader(store))
    await rescuer.once()
    clock.ahead_s = 2 * LEASE_S
    before = await rounds_interrupted(world)
    with capture_logs() as lines:
        for _ in range(3):
            await rescuer.once()
    assert [it["node"] for it in lines if it["event"] == "node.gone"].count("node") == 1
    assert await rounds_interrupted(world) == before + 2, "once for each node"
    await store._db.write(lambda conn: conn.execute(delete(schema.queue)))
    clock.ahead_s += LEASE_S
    await rescuer.once()
    assert (await store.nodes()).nodes == ()


async def rounds_interrupted(world: World) -> int:
    changes = select(schema.dispatch.c.changes)
    return int(await world.store._db.read(lambda conn: conn.scalars(changes).one()))


@databases
async def test_what_was_handed_back_goes_to_newer_nodes_only_and_uses_no_retry(world: World) -> None:
    store = world.store
    await store.transact(fire, [world.good.id], Fire())
    (mine,) = await given(store, world.node_id)
    await finish_module.finish(store, [an_end(mine, "lost", "ready", newer_than=OLD)], rule=Advance())
    board = Rounds()
    newer = await a_node(store, "newer", version=NEW)
    done = await dispatch(store, world.node_id, board, batch_max=10)
    assert [it.item_id for it in done.grants[newer].items] == [mine.item_id]
    assert (done.grants[newer].items[0].failures, done.grants[newer].items[0].losses) == (0, 0)


@databases
@pytest.mark.parametrize("more", [{"word": NEWER}, {"job_rate": NEWER}], ids=["unknown field", "unknown value"])
async def test_what_was_handed_back_keeps_all_that_a_newer_release_wrote_of_its_lane(
    world: World, more: dict[str, str]
) -> None:
    store, q, c = world.store, schema.queue.c, schema.lane.c
    await store.transact(fire, [world.good.id], Fire())
    (mine,) = await given(store, world.node_id)
    spec = select(c.spec).join(schema.queue, q.lane_id == c.id).where(q.item_id == mine.item_id)
    newer = decode(await store._db.read(lambda conn: conn.scalars(spec).one()), dict) | more
    await put_back(world, "rota_lane", "spec", c.id == mine.lane_id, encode(newer))
    await finish_module.finish(store, [an_end(mine, "lost", "ready", newer_than=OLD)], rule=Advance())
    kept = await store._db.read(lambda conn: conn.scalars(spec).one())
    assert decode(kept, dict) == newer | {"newer_than": OLD}


@databases
async def test_the_loader_tells_what_it_cannot_read_and_loads_the_rest(world: World) -> None:
    store = world.store
    await store.transact(fire, [world.good.id, world.bad.id], Fire())
    done = await dispatch(store, world.node_id, Rounds(), batch_max=10)
    await spoil(world, "rota_job_version", "definition", schema.job_version.c.job_id == world.bad.id)
    loaded = await Loader(store).attempts([done.grants[world.node_id]])
    assert [it.job_id for it in loaded.attempts] == [world.good.id]
    assert [it.job_id for it, _ in loaded.unread] == [world.bad.id]
    assert await store._db.read(lambda conn: conn.scalar(select(func.count()).select_from(schema.queue))) == 2


@databases
async def test_the_doctor_names_what_it_cannot_read_and_pages_are_full_without_it(world: World) -> None:
    await spoil(world, "rota_job", "definition", schema.job.c.id == world.good.id)
    assert [job.id for job in await world.store.jobs(JobFilter(limit=1))] == [world.bad.id]
    clock = SystemClock()
    control = Control(world.store, clock, coordinator=own_coordinator(world.store, clock, ttl_s=0.1))
    found = await control.doctor.findings()
    assert [it.about for it in found if it.code == "unreadable"] == [f"job {world.good.id} (default/default/good)"]
