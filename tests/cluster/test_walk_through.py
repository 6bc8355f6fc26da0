"""The walk-through of document 0, step by step, on ZooKeeper and on etcd (V0.3; S0.17, S0.18, S0.39, S0.44 to S0.49).

Three schedulers in this process, each with a client of its own to the real server, through a proxy of its own: one
dies by falling silent. A hook decides who tries for which job (A0.12), and a wrapper holds back the list of members
(cases 2 and 5). The mails are received by a real SMTP server.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from rota import config as configuration
from rota.assembly import make_courier
from rota.clock import SystemClock
from rota.config import CoordinatorConfig, PlacementConfig
from rota.control import Control
from rota.coordination.handover import key_of, write_handover
from rota.core.placement.claim import limit
from rota.loops.alarmer import Alarmer
from rota.loops.duty import Duty
from rota.loops.lookout import Lookout
from rota.loops.placement.attendant import Attendant
from rota.loops.placement.claimer import Claimer
from rota.loops.post import Post
from rota.model.cluster import Handover, Peer
from rota.model.entry import Entry
from rota.model.trigger import Cron
from rota.ports import Coordinator, Store
from rota.wiring import open_coordinator, open_store
from tests.factories import a_definition
from tests.servers.ports import free_port
from tests.servers.proxy import FaultProxy

SESSION_S = 2.0
PATIENCE_S = 40.0
ALARMS = {"a": 10, "b": 8, "c": 4}
"""M."""
YEARLY = Cron(expression="0 0 1 1 *")


class Mailbox:
    """A real SMTP server that keeps what it gets."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - its name is given
        self.texts.append(envelope.content.decode("utf-8", errors="replace"))
        return "250 OK"

    def held(self, name: str) -> list[int]:
        """The numbers of jobs that mails have told of a scheduler, in order."""
        found = [re.findall(rf"scheduler {name} holds (\d+) jobs", text) for text in self.texts]
        return [int(number) for numbers in found for number in dict.fromkeys(numbers)]


class Late:
    """A coordinator that can go on showing the members as they were."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.kept: tuple[Entry, ...] | None = None

    async def read(self, folder: str) -> tuple[Entry, ...]:
        if folder == "live" and self.kept is not None:
            return self.kept
        return await self._coordinator.read(folder)

    async def hold_back(self) -> None:
        self.kept = await self._coordinator.read("live")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coordinator, name)


@dataclass
class One:
    """A scheduler of the walk-through."""

    name: str
    claimer: Claimer
    coordinator: Late
    proxy: FaultProxy
    tasks: list[asyncio.Task[None]]


@dataclass
class Stage:
    """The schedulers, and what they may try for."""

    stack: AsyncExitStack
    kind: str
    port: int
    store: Store
    control: Control
    settings: Any
    folder: Path
    mailbox: Mailbox = field(default_factory=Mailbox)
    namespace: str = field(default_factory=lambda: f"walk-{secrets.token_hex(4)}")
    owner: dict[int, str] = field(default_factory=dict)
    ones: dict[str, One] = field(default_factory=dict)
    jobs: int = 0

    async def start(self, name: str) -> None:
        """Start one scheduler, as a node does, with n = 1 and its M."""
        clock = SystemClock()
        proxy = await self.stack.enter_async_context(FaultProxy("127.0.0.1", self.port))
        coordinator = Late(self._client(proxy.port))
        peer = Peer(name=name, incarnation=clock.token(), address=f"{name}:7700", alarm=ALARMS[name])
        attendant = Attendant(coordinator, clock, lambda: peer)
        placement = PlacementConfig(faults=1, alarm=ALARMS[name], automatic=False)
        claimer = Claimer(self.store, coordinator, clock, placement, attendant, order=self._order(name))
        attendant.on_entered, attendant.on_lost = claimer.wake, claimer.lose
        alarmer = Alarmer(
            self.store,
            clock,
            name,
            duty=Duty(self.store, coordinator, clock, "alarms", name),
            lookout=Lookout(self.store, clock, None, session_s=SESSION_S),
            post=Post(self.store, make_courier(self.settings, clock, self.folder, self.control)),
        )
        claimer.on_acquired = lambda _: alarmer.notebook.acquired(len(claimer.held), ALARMS[name])
        tasks = [asyncio.create_task(it.run()) for it in (attendant, claimer, alarmer)]
        self.stack.push_async_callback(self._end, tasks, coordinator)
        self.ones[name] = One(name, claimer, coordinator, proxy, tasks)
        await self.until(lambda: attendant.session is not None, f"{name} to take part")

    async def die(self, name: str) -> None:
        """Fall silent for ever."""
        one = self.ones.pop(name)
        await one.proxy.black_hole()
        for task in one.tasks:
            task.cancel()
        await asyncio.gather(*one.tasks, return_exceptions=True)

    async def add(self, *owners: str) -> None:
        """Create one job after the other, each for the one that shall try for it first."""
        for name in owners:
            self.jobs += 1
            self.owner[self.jobs] = name
            before = len(self.ones[name].claimer.held)
            await self.control.apply([a_definition(f"job-{self.jobs}", rule=YEARLY)])
            for one in self.ones.values():
                one.claimer.wake()
            await self.until(lambda n=name, b=before: len(self.ones[n].claimer.held) == b + 1, f"{name} to take it")

    def give(self, job_ids: Iterable[int], name: str) -> None:
        """Decide who tries for these from now on."""
        self.owner.update(dict.fromkeys(job_ids, name))

    async def move(self, giver: str, receiver: str, count: int) -> None:
        """Rebalance by hand: so many jobs go from one to the other."""
        jobs = sorted(self.ones[giver].claimer.held)[:count]
        self.give(jobs, receiver)
        value = write_handover({job_id: Handover(to=receiver) for job_id in jobs})
        assert await self.ones[giver].coordinator.put(key_of(giver), value, version=0) is not None
        gone = len(self.ones[giver].claimer.held) - count
        await self.until(lambda: len(self.ones[giver].claimer.held) == gone, f"{giver} to give {count}")
        await self.until(lambda: set(jobs) <= self.ones[receiver].claimer.held, f"{receiver} to get them")

    async def shows(self, schedulers: int, expected_limit: int, **held: int) -> None:
        """A line of the table: X of each, and N."""
        await self.until(
            lambda: {name: len(one.claimer.held) for name, one in self.ones.items()} == held, f"X to be {held}"
        )
        await self.until(
            lambda: all(one.claimer.limit == expected_limit for one in self.ones.values()), f"N to be {expected_limit}"
        )
        assert limit(self.jobs, schedulers, 1) == expected_limit

    async def mails(self, *held: tuple[str, int]) -> None:
        """Exactly these were mailed about since the last look; the last mail about each says what it holds now."""
        await self.until(
            lambda: all(self.mailbox.held(name)[-1:] == [count] for name, count in held), f"mails {held}", 20
        )
        told = {name for name in ALARMS if self.mailbox.held(name)}
        assert told == {name for name, _ in held}, self.mailbox.texts
        self.mailbox.texts.clear()

    async def until(self, condition: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    await asyncio.sleep(0.02)
        except TimeoutError:
            held = {name: (len(one.claimer.held), one.claimer.limit) for name, one in self.ones.items()}
            raise AssertionError(f"waited for {what}; held and limit: {held}; mails: {self.mailbox.texts}") from None

    def _client(self, port: int) -> Coordinator:
        where = CoordinatorConfig(url=f"{self.kind}://127.0.0.1:{port}", namespace=self.namespace, session_s=SESSION_S)
        return open_coordinator(where, self.store, SystemClock())

    def _order(self, name: str) -> Callable[[Iterable[int]], Sequence[int]]:
        return lambda ids: [job_id for job_id in sorted(ids) if self.owner.get(job_id, name) == name]

    async def _end(self, tasks: Sequence[asyncio.Task[None]], coordinator: Late) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await coordinator.close()


Open = Callable[[], Awaitable[Stage]]


@pytest.fixture(params=["zookeeper", pytest.param("etcd", marks=pytest.mark.nightly)])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    server = request.getfixturevalue(f"{request.param}_server")
    async with a_stage(request.param, server.port, tmp_path) as found:
        yield found


@asynccontextmanager
async def a_stage(kind: str, port: int, folder: Path) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        store = open_store(f"sqlite:///{folder}/rota.db", SystemClock(), actor="test")
        stack.push_async_callback(store.close)
        await store.migrate()
        control = Control(store, SystemClock())
        smtp = free_port()
        flags = {"alarm.smtp_host": "127.0.0.1", "alarm.smtp_port": smtp, "alarm.smtp_tls": "none"}
        settings = configuration.config_of(configuration.load(flags, environment={}))
        found = Stage(stack, kind, port, store, control, settings, folder)
        server = Controller(found.mailbox, hostname="127.0.0.1", port=smtp)
        server.start()
        stack.callback(server.stop)
        await control.set_alarm("mail", "ops@example.org", kinds=["held_above"], merge_s=0)
        yield found


async def ten_and_eight(stage: Stage) -> None:
    """The state before cases 1 to 3: A has 10, B has 8."""
    await stage.start("a")
    await stage.start("b")
    await stage.add(*"a" * 10, *"b" * 8)
    await stage.shows(2, 19, a=10, b=8)
    await stage.mails()


@pytest.mark.timeout(240)
async def test_from_the_start_to_the_manual_balance(stage: Stage) -> None:
    stage.jobs = 9
    stage.give(range(1, 10), "a")
    await stage.control.apply([a_definition(f"job-{n}", rule=YEARLY) for n in range(1, 10)])
    await stage.start("a")
    await stage.shows(1, 10, a=9)
    await stage.add("a")
    await stage.shows(1, 11, a=10)
    await stage.mails()
    await stage.add("a")
    await stage.shows(1, 12, a=11)
    await stage.mails(("a", 11))
    await stage.start("b")
    await stage.shows(2, 12, a=11, b=0)
    await stage.add("b")
    await stage.shows(2, 13, a=11, b=1)
    await stage.mails()
    await stage.add("a")
    await stage.shows(2, 14, a=12, b=1)
    await stage.mails(("a", 12))
    await stage.move("a", "b", 5)
    await stage.shows(2, 14, a=7, b=6)
    await stage.add("a", "a", "a", "b", "b")
    await stage.shows(2, 19, a=10, b=8)
    await stage.mails()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("late", [False, True], ids=["case 1", "case 2: the offline event is late"])
async def test_one_of_two_dies(stage: Stage, late: bool) -> None:
    await ten_and_eight(stage)
    if late:
        await stage.ones["a"].coordinator.hold_back()
    stage.give(range(1, 19), "a")
    await stage.die("b")
    await stage.shows(2 if late else 1, 19, a=18)
    await stage.mails(("a", 18))


async def ten_nine_and_none(stage: Stage) -> None:
    """Case 3, and then C is added."""
    await ten_and_eight(stage)
    await stage.add("b")
    await stage.shows(2, 20, a=10, b=9)
    await stage.mails(("b", 9))
    await stage.start("c")
    await stage.shows(3, 10, a=10, b=9, c=0)


async def nine_seven_and_three(stage: Stage) -> None:
    await ten_nine_and_none(stage)
    await stage.move("a", "c", 1)
    await stage.move("b", "c", 2)
    await stage.shows(3, 10, a=9, b=7, c=3)
    await stage.mails()


@pytest.mark.timeout(240)
async def test_case_4_one_of_three_dies(stage: Stage) -> None:
    await nine_seven_and_three(stage)
    orphans = sorted(stage.ones["b"].claimer.held)
    stage.give(orphans[:4], "a")
    stage.give(orphans[4:], "c")
    await stage.die("b")
    await stage.shows(2, 20, a=13, c=6)
    await stage.mails(("a", 13), ("c", 6))


@pytest.mark.timeout(240)
async def test_case_5_one_of_three_dies_and_the_offline_event_is_late(stage: Stage) -> None:
    await nine_seven_and_three(stage)
    orphans = sorted(stage.ones["b"].claimer.held)
    for one in (stage.ones["a"], stage.ones["c"]):
        await one.coordinator.hold_back()
    stage.give(orphans, "a")  # it tries for all of them, and may have one more
    await stage.die("b")
    await stage.until(lambda: len(stage.ones["a"].claimer.held) == 10, "A to reach its limit")
    stage.give(orphans, "c")
    stage.ones["c"].claimer.wake()
    await stage.shows(3, 10, a=10, c=9)
    await stage.mails(("c", 9))


@pytest.mark.timeout(240)
async def test_without_balancing_one_reaches_its_limit_and_refuses(stage: Stage) -> None:
    """Row 5.4, A0.15."""
    await ten_nine_and_none(stage)
    await stage.add("c")
    await stage.add("a")
    await stage.shows(3, 11, a=11, b=9, c=1)
    await stage.mails(("a", 11))
    before = stage.ones["a"].claimer.held
    stage.jobs += 1
    stage.owner[stage.jobs] = "a"
    await stage.control.apply([a_definition("job-refused", rule=YEARLY)])
    await stage.until(lambda: all(it.claimer.limit == 12 for it in stage.ones.values()), "all to have seen it")
    assert limit(stage.jobs, 3, 1) == 12
    await stage.until(lambda: len(stage.ones["a"].claimer.held) == 12, "A to take it: its limit has grown")
    assert before < stage.ones["a"].claimer.held
