"""The walk-through of placement claim, on ZooKeeper and on etcd (V0.3; S0.17, S0.18, S0.39, S0.44 to S0.49).

Three nodes, each a process of its own (`rota node`), coordinated by the real server; one dies by SIGKILL. A hook
decides who tries for which job (A0.12), and holds back the list of members (cases 2 and 5): `directed.py`. What each
has, and its limit, is read from the coordinator, as any client could. The mails are received by a real SMTP server.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from rota.clock import SystemClock
from rota.config import CoordinatorConfig
from rota.control import Control
from rota.coordinators.recipes import handover_key, notify, read_peer, write_handover
from rota.core.placement.claim import limit
from rota.model.cluster import Handover
from rota.model.trigger import Cron
from rota.ports import Coordinator
from rota.wiring import open_coordinator, open_store
from tests.cluster.directed import OWNERS
from tests.cluster.processes import NodeProcess
from tests.factories import a_definition
from tests.servers.ports import free_port

SESSION_S = 5.0
"""As long as the ZooKeeper of the tests allows: nobody but who is killed shall lose what it has."""
PATIENCE_S = 60.0
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


@dataclass(frozen=True)
class Balance:
    """What each scheduler has, by its claims, and the limit that it tells."""

    held: dict[str, frozenset[int]]
    limits: dict[str, int]

    @property
    def counts(self) -> dict[str, int]:
        return {name: len(jobs) for name, jobs in self.held.items()}


@dataclass
class Stage:
    """The nodes, and what they may try for."""

    coordinator: Coordinator
    control: Control
    url: str
    settings: dict[str, str]
    folder: Path
    mailbox: Mailbox
    nodes: dict[str, NodeProcess] = field(default_factory=dict)
    owner: dict[int, str] = field(default_factory=dict)
    jobs: int = 0

    async def start(self, name: str) -> None:
        """Start one node, with n = 1 and its M."""
        self.give((), name)
        node = NodeProcess(
            name,
            self.url,
            self.folder,
            settings={**self.settings, "ROTA_PLACEMENT_ALARM": str(ALARMS[name])},
            program=("tests.cluster.directed", str(self.folder)),
        )
        self.nodes[name] = node
        node.start()
        await self.until(lambda it: name in it.limits, f"{name} to take part")

    async def die(self, name: str) -> None:
        self.nodes.pop(name).kill()

    async def add(self, *owners: str) -> None:
        """Create one job after the other, each for the one that shall try for it first."""
        for name in owners:
            job_id = await self.create(name)
            await self.until(lambda it, n=name, j=job_id: j in it.held[n], f"{name} to take job {job_id}")

    async def add_at_once(self, *owners: str) -> None:
        """Create many jobs, each for one."""
        first = self.jobs + 1
        self.jobs += len(owners)
        for job_id, name in enumerate(owners, first):
            self.give([job_id], name)
        await self.control.jobs.apply([a_definition(f"job-{n}", rule=YEARLY) for n in range(first, self.jobs + 1)])

    async def create(self, owner: str) -> int:
        self.jobs += 1
        self.give([self.jobs], owner)
        await self.control.jobs.apply([a_definition(f"job-{self.jobs}", rule=YEARLY)])
        return self.jobs

    def give(self, job_ids: Iterable[int], name: str) -> None:
        """Decide who tries for these from now on."""
        self.owner.update(dict.fromkeys(job_ids, name))
        new = self.folder / "owners.new"
        new.write_text(json.dumps(self.owner))
        new.rename(self.folder / OWNERS)

    async def give_free(self, job_ids: Iterable[int], name: str) -> None:
        """The same of jobs that are free already: a scheduler at rest would not look at them before long."""
        self.give(job_ids, name)
        await notify(self.coordinator, SystemClock(), "drain")

    def hold_back(self, *names: str) -> None:
        """Let these not see from now on who comes and goes."""
        for name in names:
            (self.folder / f"late-{name}").touch()

    def asked(self, name: str) -> list[list[int]]:
        """The unowned jobs that a scheduler has found, in each of its sweeps."""
        return [json.loads(line) for line in (self.folder / f"asked-{name}").read_text().splitlines()]

    async def move(self, giver: str, receiver: str, count: int) -> None:
        """Rebalance by hand: so many jobs go from one to the other."""
        jobs = sorted((await self.balance()).held[giver])[:count]
        self.give(jobs, receiver)
        value = write_handover({job_id: Handover(to=receiver) for job_id in jobs})
        assert await self.coordinator.put(handover_key(giver), value, version=0) is not None
        await self.until(lambda it: set(jobs) <= it.held[receiver], f"{receiver} to get {jobs}")

    async def balance(self) -> Balance:
        peers = [peer for entry in await self.coordinator.read("live") if (peer := read_peer(entry)) is not None]
        claims = [(int(it.name), it.value) for it in await self.coordinator.read("jobs") if it.name.isdigit()]
        held = {name: frozenset(job_id for job_id, owner in claims if owner == name) for name in self.nodes}
        return Balance(held, {peer.name: peer.limit for peer in peers if peer.name in self.nodes})

    async def shows(self, schedulers: int, expected_limit: int, **held: int) -> None:
        """A line of the table: X of each, and N."""
        limits = dict.fromkeys(held, expected_limit)
        await self.until(lambda it: it.counts == held and it.limits == limits, f"X to be {held}, N {expected_limit}")
        assert limit(self.jobs, schedulers, 1) == expected_limit

    async def mails(self, *held: tuple[str, int]) -> None:
        """Exactly these were mailed about since the last look; the last mail about each says what it holds now."""
        await self.until(
            lambda _: all(self.mailbox.held(name)[-1:] == [count] for name, count in held), f"mails {held}"
        )
        told = {name for name in ALARMS if self.mailbox.held(name)}
        assert told == {name for name, _ in held}, self.mailbox.texts
        self.mailbox.texts.clear()

    async def until(self, condition: Callable[[Balance], bool], what: str, within_s: float = PATIENCE_S) -> None:
        found = None
        try:
            async with asyncio.timeout(within_s):
                while not condition(found := await self.balance()):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            logs = "\n".join(f"--- {node.name}\n{node.log[-800:]}" for node in self.nodes.values())
            raise AssertionError(f"waited for {what}; {found}; mails: {self.mailbox.texts}\n{logs}") from None


@pytest.fixture(params=["zookeeper", pytest.param("etcd", marks=pytest.mark.nightly)])
async def stage(request: pytest.FixtureRequest, postgres_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    server = request.getfixturevalue(f"{request.param}_server")
    async with a_stage(f"{request.param}://127.0.0.1:{server.port}", postgres_url, tmp_path) as found:
        yield found


@asynccontextmanager
async def a_stage(coordinator_url: str, url: str, folder: Path) -> AsyncIterator[Stage]:
    where = CoordinatorConfig(url=coordinator_url, namespace=f"walk-{secrets.token_hex(4)}", session_s=SESSION_S)
    async with AsyncExitStack() as stack:
        store = open_store(url, SystemClock(), actor="test")
        stack.push_async_callback(store.close)
        await store.migrate()
        coordinator = open_coordinator(where, store, SystemClock())
        stack.push_async_callback(coordinator.close)
        mailbox, smtp = Mailbox(), free_port()
        server = Controller(mailbox, hostname="127.0.0.1", port=smtp)
        server.start()
        stack.callback(server.stop)
        control = Control(store, SystemClock())
        await control.alarms.set("mail", "ops@example.org", kinds=["held_above"], merge_s=0)
        settings = {
            "ROTA_COORDINATOR_URL": where.url,
            "ROTA_COORDINATOR_NAMESPACE": where.namespace,
            "ROTA_COORDINATOR_SESSION_S": str(SESSION_S),
            "ROTA_PLACEMENT_FAULTS": "1",
            "ROTA_PLACEMENT_AUTOMATIC": "false",
            "ROTA_ALARM_SMTP_HOST": "127.0.0.1",
            "ROTA_ALARM_SMTP_PORT": str(smtp),
        }
        found = Stage(coordinator, control, url, settings, folder, mailbox)
        stack.callback(lambda: [node.kill() for node in found.nodes.values()])
        yield found


async def ten_and_eight(stage: Stage) -> None:
    """The state before cases 1 to 3: A has 10, B has 8."""
    await stage.start("a")
    await stage.start("b")
    await stage.add_at_once(*"a" * 10, *"b" * 8)
    await stage.shows(2, 19, a=10, b=8)
    await stage.mails()


@pytest.mark.timeout(300)
async def test_from_the_start_to_the_manual_balance(stage: Stage) -> None:
    await stage.add_at_once(*"a" * 9)
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


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("late", [False, True], ids=["case 1", "case 2: the offline event is late"])
async def test_one_of_two_dies(stage: Stage, late: bool) -> None:
    await ten_and_eight(stage)
    if late:
        stage.hold_back("a")
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


@pytest.mark.timeout(300)
async def test_case_4_one_of_three_dies(stage: Stage) -> None:
    await nine_seven_and_three(stage)
    orphans = sorted((await stage.balance()).held["b"])
    stage.give(orphans[:4], "a")
    stage.give(orphans[4:], "c")
    await stage.die("b")
    await stage.shows(2, 20, a=13, c=6)
    await stage.mails(("a", 13), ("c", 6))


@pytest.mark.nightly
@pytest.mark.timeout(300)
async def test_case_5_one_of_three_dies_and_the_offline_event_is_late(stage: Stage) -> None:
    await nine_seven_and_three(stage)
    orphans = sorted((await stage.balance()).held["b"])
    stage.hold_back("a", "c")
    stage.give(orphans, "a")  # it tries for all of them, and may have one more
    await stage.die("b")
    await stage.until(lambda it: len(it.held["a"]) == 10, "A to reach its limit")
    await stage.give_free(orphans, "c")
    await stage.shows(3, 10, a=10, c=9)
    await stage.mails(("c", 9))


@pytest.mark.timeout(300)
async def test_without_balancing_one_reaches_its_limit_and_refuses(stage: Stage) -> None:
    """Row 5.4, A0.15: at K = 20 and at K = 21 N is 11. A takes one more, and is full; the next one is free, A alone may
    try for it, and it leaves it alone. Only when C may try too has it an owner."""
    await ten_nine_and_none(stage)
    await stage.add("a")
    await stage.shows(3, 11, a=11, b=9, c=0)
    await stage.mails(("a", 11))
    refused = await stage.create("a")
    seen = len(stage.asked("a"))
    await stage.until(lambda _: sum(refused in ids for ids in stage.asked("a")[seen:]) >= 3, "A to look at it thrice")
    await stage.shows(3, 11, a=11, b=9, c=0)
    await stage.give_free([refused], "c")
    await stage.shows(3, 11, a=11, b=9, c=1)
    await stage.mails()
