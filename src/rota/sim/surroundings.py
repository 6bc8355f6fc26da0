"""What a simulated node finds where a real one touches the world: its runner and host, the way to other nodes, the
definitions that people keep, who takes messages to people, and where output is kept.

The runner has no processes: attempts take virtual time, and die by a switch that needs no agent.

    begin ──> runs for as long as its job says ──> ended
                │ the switch: not renewed until sent + lease - margin (+ hold); looks every 0.2 s
                │ the agent has died: gone within a moment
                └──> lost

A host that stands still as a whole stops its attempts too; when it goes on, the switch acts within one look.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.definitions.loaded import Loaded
from rota.errors import Undelivered
from rota.model.alarm import AlarmRule, Message
from rota.model.job import Definition
from rota.model.node import PingAnswer, Place
from rota.model.run import LogKey
from rota.model.states import Outcome
from rota.model.work import Attempt, AttemptEnd
from rota.ports import Clock, Listener, LogStore
from rota.sim.history import Attempted, History, Sent
from rota.sim.link import SimHost
from rota.sim.loop import Dice, HostClock, ScheduledCall, SimLoop

if TYPE_CHECKING:
    from rota.sim.node import SimNode

PROBE_S = 1.5
"""How long a node waits for the answer of another one."""
CARRY_S = 3.0
"""How long a message takes at most."""
UNDELIVERED = 0.1
"""The part of the messages that do not arrive."""
LOOK_S = 0.2
"""How often a switch looks at the clock."""
DEATH_S = 0.5
"""Within this time of an agent's death its trees are gone."""
FAILING = 0.05
"""The part of the attempts that fail."""


@dataclass(slots=True)
class Running:
    """An attempt that has begun."""

    attempt: Attempt
    noted: Attempted
    started_s: float
    timer: ScheduledCall


class SimRunner:
    """The attempts of one incarnation of a node."""

    boundary = "simulated"

    def __init__(
        self,
        loop: SimLoop,
        clock: HostClock,
        place: Place,
        chance: Dice,
        history: History,
        logs: LogStore | None = None,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._place = place
        self._chance = chance
        self._history = history
        self._logs = logs
        self._listener: Listener | None = None
        self._until_s = 0.0
        self._switch: ScheduledCall | None = None
        self._frozen_until_s = 0.0
        self.former: list[SimRunner] = []
        """The runners of earlier incarnations on this host."""
        self.running: dict[tuple[int, int], Running] = {}
        self.is_dead = False

    async def open(self, listener: Listener) -> None:
        self._listener = listener

    def here(self) -> Place:
        return self._place

    def gone(self, place: Place) -> bool:
        return any(it.here() == place and it.is_dead and not it.running for it in self.former)

    def renew(self, until_s: float) -> None:
        self._until_s = until_s
        self._arm()

    def unable(self) -> str:
        return ""

    def begin(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            if self._clock.boottime() >= self._until_s:
                self._tell(attempt, None, Outcome.LOST)
            else:
                self._start(attempt)
        self._arm()

    def cancel(self, item_ids: Sequence[int]) -> None:
        for it in self.running.values():
            if it.attempt.item_id in item_ids:
                self._end_in(it, self._chance.random(), Outcome.CANCELLED)

    def drop(self, attempts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        for it in list(self.running.values()):
            if (it.attempt.item_id, it.attempt.token) in attempts:
                self._over(it, Outcome.LOST)
        return []

    async def close(self) -> None:
        for it in list(self.running.values()):
            self._over(it, Outcome.LOST)

    def die(self) -> None:
        """The agent is dead: nobody is told of the ends, which come soon."""
        self.is_dead, self._listener = True, None
        for it in self.running.values():
            self._end_in(it, self._chance.random() * DEATH_S, Outcome.LOST)

    def freeze(self, for_s: float) -> None:
        """The host stands still: so much later everything goes on where it was."""
        self._frozen_until_s = max(self._frozen_until_s, self._loop.time() + for_s)
        for it in self.running.values():
            self._end_in(it, it.timer.when() - self._loop.time() + for_s, Outcome(it.noted.outcome))

    def _start(self, attempt: Attempt) -> None:
        assert self._listener is not None
        work_s = float(str(attempt.spec.config["work_s"])) * (0.5 + self._chance.random())
        outcome = Outcome.FAILED if self._chance.random() < FAILING else Outcome.SUCCEEDED
        noted = Attempted(
            self._loop.time(), self._place.host, attempt.item_id, attempt.attempt, attempt.token, attempt.spec.tenant
        )
        self._history.attempts.append(noted)
        if self._logs is not None:
            self._logs.append(LogKey(attempt.run_id, attempt.item_id, attempt.attempt), 0, b"begun\n")
        begun_s = self._clock.monotonic()
        it = Running(attempt, noted, begun_s, self._loop.call_later(work_s, lambda: None))
        self.running[attempt.item_id, attempt.attempt] = it
        self._end_in(it, work_s, outcome)
        self._listener.started([(attempt.item_id, attempt.attempt, begun_s)])

    def _end_in(self, it: Running, seconds: float, outcome: Outcome) -> None:
        it.timer.cancel()
        it.noted.outcome = outcome
        it.timer = self._loop.call_later(seconds, self._over, it, outcome)

    def _over(self, it: Running, outcome: Outcome) -> None:
        it.timer.cancel()
        it.noted.end_s, it.noted.outcome = self._loop.time(), outcome
        del self.running[it.attempt.item_id, it.attempt.attempt]
        self._tell(it.attempt, it.started_s, outcome)

    def _tell(self, attempt: Attempt, started_s: float | None, outcome: Outcome) -> None:
        self._history.counts.lost_attempts += outcome is Outcome.LOST
        if self._listener is None:
            return
        end = AttemptEnd(
            item_id=attempt.item_id,
            attempt=attempt.attempt,
            outcome=outcome,
            started_s=started_s,
            ended_s=self._clock.monotonic(),
        )
        self._listener.ended([end])

    def _arm(self) -> None:
        """Look first when the time of the switch may be over; while the host stands still it does not look."""
        if self._switch is None and self.running:
            over_s = self._clock.after(self._until_s - self._clock.boottime())
            look_s = max(over_s, self._frozen_until_s, self._loop.time()) + self._chance.random() * LOOK_S
            self._switch = self._loop.call_at(look_s, self._look)

    def _look(self) -> None:
        self._switch = None
        if self._clock.boottime() >= self._until_s and self._loop.time() >= self._frozen_until_s:
            for it in list(self.running.values()):
                self._over(it, Outcome.LOST)
        self._arm()


class Network:
    """The way between the nodes. A process that is gone refuses at once; a host that stands still does not answer."""

    def __init__(self) -> None:
        self._nodes: dict[str, SimNode] = {}

    def add(self, address: str, node: SimNode) -> None:
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
