"""A runner without processes: attempts take virtual time, and die by a switch that needs no agent.

    begin ──> runs for as long as its job says ──> ended
                │ the switch: not renewed until sent + lease - margin (+ hold); looks every 0.2 s
                │ the agent has died: gone within a moment
                └──> lost

A host that stands still as a whole stops its attempts too; when it goes on, the switch acts within one look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.model.node import Place
from rota.model.run import LogKey
from rota.model.states import Outcome
from rota.model.work import Attempt, AttemptEnd
from rota.ports import Listener, LogStore
from rota.sim.history import Attempted, History
from rota.sim.loop import Dice, HostClock, ScheduledCall, SimLoop

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
        work_s = float(str(attempt.config["work_s"])) * (0.5 + self._chance.random())
        outcome = Outcome.FAILED if self._chance.random() < FAILING else Outcome.SUCCEEDED
        noted = Attempted(
            self._loop.time(), self._place.host, attempt.item_id, attempt.attempt, attempt.token, attempt.tenant
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
        if self._switch is None and self.running:
            self._switch = self._loop.call_at(self._next_look_s(), self._look)

    def _next_look_s(self) -> float:
        """The first look of the switch at which its time may be over; while the host stands still it does not look."""
        over_s = self._clock.after(self._until_s - self._clock.boottime())
        return max(over_s, self._frozen_until_s, self._loop.time()) + self._chance.random() * LOOK_S

    def _look(self) -> None:
        self._switch = None
        if self._clock.boottime() >= self._until_s and self._loop.time() >= self._frozen_until_s:
            for it in list(self.running.values()):
                self._over(it, Outcome.LOST)
        self._arm()
