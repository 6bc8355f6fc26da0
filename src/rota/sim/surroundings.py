"""What a simulated node finds where a real one touches the world: its host, the way to other nodes, the definitions
that people keep, who takes messages to people, and where output is kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from rota.definitions.loaded import Loaded
from rota.errors import Undelivered
from rota.model.alarm import AlarmRule, Message
from rota.model.job import Definition
from rota.model.node import PingAnswer, Place
from rota.model.run import LogKey
from rota.ports import Clock
from rota.sim.history import History, Sent
from rota.sim.link import SimHost
from rota.sim.loop import Dice, SimLoop
from rota.sim.runner import SimRunner

PROBE_S = 1.5
"""How long a node waits for the answer of another one."""
CARRY_S = 3.0
"""How long a message takes at most."""
UNDELIVERED = 0.1
"""The part of the messages that do not arrive."""


class SimHostFacts:
    """What a simulated node asks of its host (`HostFacts`): nothing but its attempts keeps it busy."""

    skew_s = None

    def __init__(self, address: str, runner: SimRunner) -> None:
        self.address = address
        self._runner = runner

    def place(self) -> Place:
        return self._runner.here()

    def is_gone(self, place: Place) -> bool:
        return self._runner.gone(place)

    def cpu(self) -> float:
        return 0.0

    def memory(self) -> float:
        return 0.0

    def kinds(self) -> tuple[str, ...]:
        return ()

    def promises(self, boundary: str) -> dict[str, str]:
        return {}


class Answering(Protocol):
    """A node as the others reach it."""

    @property
    def is_up(self) -> bool: ...

    @property
    def host(self) -> SimHost: ...

    def answer(self) -> PingAnswer: ...


class Network:
    """The way between the nodes. A process that is gone refuses at once; a host that stands still does not answer."""

    def __init__(self) -> None:
        self._nodes: dict[str, Answering] = {}

    def add(self, address: str, node: Answering) -> None:
        self._nodes[address] = node

    async def probe(self, address: str, asking: SimHost, clock: Clock) -> PingAnswer | None:
        """Who answers there."""
        await asking.going()
        node = self._nodes.get(address)
        if node is None or not node.is_up:
            return None
        if node.host.stands_still:
            await clock.sleep(PROBE_S)
            await asking.going()
            return None
        return node.answer()


class KeptDefinitions:
    """The definitions that people keep for all nodes, in memory (`definer.Source`)."""

    def __init__(self) -> None:
        self._kept: tuple[Definition, ...] = ()

    def keep(self, definitions: Sequence[Definition]) -> None:
        """People add these."""
        self._kept = (*self._kept, *definitions)

    async def fingerprint(self) -> object:
        return len(self._kept)

    async def load(self) -> Loaded:
        return Loaded(definitions=self._kept)


class NotingCourier:
    """Takes messages nowhere (`ports.Courier`), and notes those that arrived. Some take long, some do not arrive."""

    def __init__(self, loop: SimLoop, clock: Clock, host: SimHost, chance: Dice, history: History) -> None:
        self._loop = loop
        self._clock = clock
        self._host = host
        self._chance = chance
        self._history = history

    async def send(self, rule: AlarmRule, message: Message) -> str:
        await self._clock.sleep(self._chance.random() * CARRY_S)
        await self._host.going()
        if self._chance.random() < UNDELIVERED:
            raise Undelivered("refused")
        self._history.sent.append(Sent(self._loop.time(), self._host.name, message.id, message.kind, message.count))
        return "taken"


class MemoryLogs:
    """Output of the attempts of one host, in memory (`ports.LogStore`)."""

    def __init__(self) -> None:
        self._kept: dict[int, dict[LogKey, bytes]] = defaultdict(dict)
        self._totals: dict[LogKey, int] = {}

    def append(self, key: LogKey, offset: int, data: bytes) -> None:
        known = self._kept[key.run_id].get(key, b"")
        self._kept[key.run_id][key] = known[:offset] + data

    def read(self, key: LogKey, offset: int, limit: int) -> bytes:
        return self._kept.get(key.run_id, {}).get(key, b"")[offset : offset + limit]

    def close_log(self, key: LogKey, total: int) -> None:
        self._totals[key] = total

    def total(self, key: LogKey) -> int | None:
        return self._totals.get(key)

    def runs(self, after_id: int, limit: int) -> Sequence[int]:
        return sorted(run_id for run_id in self._kept if run_id > after_id)[:limit]

    def prune(self, run_ids: Sequence[int]) -> None:
        for run_id in run_ids:
            for key in self._kept.pop(run_id, ()):
                self._totals.pop(key, None)
