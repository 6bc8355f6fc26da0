"""What lies between a node and a server: requests and replies that are late or lost, notices that are worse.

    send ──request──> applied, all at once ──reply──> answered
      │ lost: nothing was done      │ lost: done, and nobody knows
      └───────── no answer in time: unavailable ──────┘

A request whose sender has died is still applied; one whose sender has given up is not. A sender that stands still
takes nothing in until it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, NamedTuple

from rota.errors import RotaError
from rota.sim.history import History
from rota.sim.loop import Dice, SimLoop
from rota.sim.plan import FaultKind, PlannedFault

Verb = Callable[[], Coroutine[Any, Any, Any]]

PATIENCE_S = 2.0
"""How long a sender waits for an answer."""
SOMETIMES = 0.12
"""How often a message takes a moment although nothing is wrong."""
MOMENT_S = 0.02

_BOTH_WAYS = frozenset(
    {
        FaultKind.CUT_STORE,
        FaultKind.CUT_COORDINATOR,
        FaultKind.HALF_ENTERED,
        FaultKind.OUTAGE_STORE,
        FaultKind.OUTAGE_COORDINATOR,
    }
)
_OUT = _BOTH_WAYS | {FaultKind.DEAF_STORE}
_IN = _BOTH_WAYS | {FaultKind.MUTE_STORE, FaultKind.MUTE_COORDINATOR}


class SimHost:
    """Whether a machine and the agent on it stand still."""

    def __init__(self, loop: SimLoop, name: str) -> None:
        self._loop = loop
        self.name = name
        self.frozen_until_s = 0.0

    def freeze(self, until_s: float) -> None:
        self.frozen_until_s = max(self.frozen_until_s, until_s)

    @property
    def stands_still(self) -> bool:
        return self.frozen_until_s > self._loop.time()

    async def going(self) -> None:
        """Wait until the agent goes on."""
        while self.stands_still:
            thawed: asyncio.Future[None] = self._loop.create_future()
            self._loop.call_at(self.frozen_until_s, _settle, thawed, None)
            await thawed


asking_host: ContextVar[SimHost | None] = ContextVar("asking_host", default=None)
"""Who has sent the request that is served."""


class Failures(NamedTuple):
    """What a sender is told: nothing was done; or nobody knows."""

    unavailable: type[RotaError]
    unknown: type[RotaError]


class SimLink:
    """The way between one process and one server."""

    def __init__(
        self,
        loop: SimLoop,
        host: SimHost,
        chance: Dice,
        failures: Failures,
        history: History,
        *,
        waits: bool = False,
    ) -> None:
        """`waits`: requests to the server may have to wait for others."""
        self._loop = loop
        self._host = host
        self._chance = chance
        self._failures = failures
        self._history = history
        self._counts = history.counts
        self._faults: list[PlannedFault] = []
        self.waiting: PlannedFault | None = None
        """What begins when the node on this side has entered next, and sent so many more requests as it says."""
        self._coming: tuple[PlannedFault, int] | None = None
        self._late_s = self._slow_s = 0.0
        self._lossy = 0.0
        self._out = self._in = False
        self._bad_notices: float = 0.0
        self.process = 1
        """The number of the process on this side."""
        self._waits = waits

    @property
    def is_impaired(self) -> bool:
        return bool(self._faults)

    def begin(self, fault: PlannedFault) -> None:
        self._faults.append(fault)
        self._weigh()

    def end(self, fault: PlannedFault) -> None:
        self._faults.remove(fault)
        self._weigh()

    def entering(self) -> None:
        """The node on this side begins to enter."""
        if self.waiting is not None:
            self._coming, self.waiting = (self.waiting, round(self.waiting.much)), None

    def close(self) -> None:
        """The process on this side has died; the next one begins anew."""
        self.process += 1

    async def ask(self, verb: Verb, process: int) -> Any:
        """Send a request and wait for its answer."""
        if self._host.stands_still:
            await self._host.going()
        if process != self.process:
            raise self._failures.unavailable("this process has died")
        self._counts.calls += 1
        self._count_down()
        if not self._faults and self._chance.random() >= SOMETIMES:
            return await self._served(verb) if self._waits else self._apply(verb)
        answer: asyncio.Future[Any] = self._loop.create_future()
        sent_s = self._loop.time()
        self._loop.call_later(self._delay_s(), self._arrive, verb, answer, sent_s)
        try:
            result = await answer
        except Exception:
            await self._host.going()
            raise
        await self._host.going()
        return result

    def _count_down(self) -> None:
        if self._coming is None:
            return
        fault, left = self._coming
        self._coming = (fault, left - 1) if left else None
        if not left:
            self.begin(fault)
            self._loop.call_later(fault.for_s, self.end, fault)

    def notice(self, wake: Callable[[], None], process: int) -> None:
        """Bring a notice to a process."""
        if process != self.process or self._in:
            return
        if not self._bad_notices:
            wake()
            return
        for _ in range(self._chance.choice((0, 1, 1, 2))):
            self._loop.call_later(self._chance.random() * self._bad_notices, wake)

    async def _served(self, verb: Verb) -> Any:
        """Have a request served that may have to wait for others. Whoever gives up or dies meanwhile has done
        nothing."""
        asking_host.set(self._host)
        self._history.asking = self._host.name
        return await verb()

    def _serve_late(self, verb: Verb, answer: asyncio.Future[Any], sent_s: float) -> None:
        task = self._loop.create_task(self._served(verb))
        answer.add_done_callback(lambda _: task.cancel())
        task.add_done_callback(lambda done: self._answer(done, answer, sent_s))

    def _answer(self, done: asyncio.Task[Any], answer: asyncio.Future[Any], sent_s: float) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, Exception):
            self._loop.call_later(self._delay_s(), self._refuse, answer, error, sent_s)
        elif error is None:
            self._send_back(answer, done.result(), sent_s)

    def _send_back(self, answer: asyncio.Future[Any], result: Any, sent_s: float) -> None:
        late_s = max(self._delay_s(), self._chance.random() * self._slow_s)
        self._loop.call_later(late_s, self._reply, answer, result, sent_s)

    def _apply(self, verb: Verb) -> Any:
        self._history.asking = self._host.name
        return at_once(verb())

    def _weigh(self) -> None:
        kinds = {it.kind for it in self._faults}
        self._out, self._in = bool(kinds & _OUT), bool(kinds & _IN)
        worst = {kind: max(it.much for it in self._faults if it.kind is kind) for kind in kinds}
        self._late_s, self._slow_s = worst.get(FaultKind.SLOW, 0.0), worst.get(FaultKind.SLOW_REPLIES, 0.0)
        self._lossy, self._bad_notices = worst.get(FaultKind.LOST_REPLIES, 0.0), worst.get(FaultKind.NOTICES, 0.0)

    def _delay_s(self) -> float:
        return self._chance.random() * (self._late_s or MOMENT_S)

    def _arrive(self, verb: Verb, answer: asyncio.Future[Any], sent_s: float) -> None:
        is_late = answer.done() or self._loop.time() - sent_s > PATIENCE_S
        if self._out or (is_late and not answer.cancelled()):
            self._fail(answer, self._failures.unavailable, sent_s)
            return
        if self._waits:
            self._serve_late(verb, answer, sent_s)
            return
        try:
            result = self._apply(verb)
        except Exception as error:  # noqa: BLE001 - an answer like any other
            self._loop.call_later(self._delay_s(), self._refuse, answer, error, sent_s)
        else:
            self._send_back(answer, result, sent_s)

    def _reply(self, answer: asyncio.Future[Any], result: Any, sent_s: float) -> None:
        lost = self._in or (self._lossy > 0 and self._chance.random() < self._lossy)
        if lost or self._loop.time() - sent_s > PATIENCE_S:
            self._counts.unknown_commits += not answer.done()
            self._fail(answer, self._failures.unknown, sent_s)
        else:
            _settle(answer, result)

    def _refuse(self, answer: asyncio.Future[Any], error: Exception, sent_s: float) -> None:
        if self._in:
            self._fail(answer, self._failures.unavailable, sent_s)
        elif not answer.done():
            answer.set_exception(error)

    def _fail(self, answer: asyncio.Future[Any], kind: type[RotaError], sent_s: float) -> None:
        """Nobody answers; the sender notices when its patience is at an end."""
        self._counts.failed_calls += 1
        error = kind("no answer")
        self._loop.call_at(max(sent_s + PATIENCE_S, self._loop.time()), _give_up, answer, error)


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """Do what never waits: every verb of a server in memory is one step."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("a verb of a server in memory had to wait")


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


def _give_up(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
