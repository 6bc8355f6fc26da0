"""The event loop of a simulation: virtual time, and ready callbacks in an order that the seed decides, so that
different seeds show different interleavings and the same seed shows the same one. The clocks of hosts are wrong, and
the store's can jump forward."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from random import Random
from typing import Any, TypeVar

from rota.virtual import Deadlock, VirtualClock, VirtualLoop

__all__ = ["EPOCH", "Deadlock", "Dice", "HostClock", "SimClock", "SimLoop", "StoreClock", "dice", "simulate"]

T = TypeVar("T")

Dice = Random
"""A stream of chance. Everybody who throws has one of their own, so that one throw more of one changes no other."""

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


STEPS = 20
"""So many steps take a microsecond: whoever waits for less than a float can tell apart gets on."""


def dice(seed: int, name: str) -> Dice:
    """The chance of one who throws, decided by the seed."""
    return Random(f"{seed}:{name}")  # noqa: S311 - must repeat, guards nothing


class ScheduledCall:
    """A callback that waits for its turn or its time: what a handle of asyncio is, and as little as that can be."""

    __slots__ = ("args", "at_us", "callback", "context", "is_cancelled")

    def __init__(self, at_us: int, callback: Callable[..., object], args: Sequence[Any], context: Context) -> None:
        self.at_us = at_us
        self.callback = callback
        self.args = args
        self.context = context
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.at_us / 1_000_000


class SimTask(asyncio.Task[Any]):
    """A task that knows how many were made before it."""

    number = 0


class SimLoop(VirtualLoop):
    """An asyncio loop in virtual time that shuffles. A simulation is all callbacks and timers, so both are as light as
    they can be, and timers are kept in a heap of plain tuples: comparing handles would cost more than running them."""

    def __init__(self, seed: int) -> None:
        self._random = dice(seed, "loop")
        self._timers: list[tuple[int, int, ScheduledCall]] = []
        self._number = self._steps = self._made = 0
        super().__init__()
        self.set_task_factory(self._make)  # type: ignore[arg-type]

    def throw(self) -> float:
        """The next number: it says how the loop has thrown until now."""
        return self._random.random()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> ScheduledCall:
        call = ScheduledCall(self._virtual_us, callback, args, context or copy_context())
        self._ready.append(call)  # type: ignore[attr-defined]
        return call

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> ScheduledCall:
        return self.call_at(self._virtual_us / 1_000_000 + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> ScheduledCall:
        at_us = round(when * 1_000_000)
        if at_us <= self._virtual_us and when > self._virtual_us / 1_000_000:
            at_us = self._virtual_us + 1
        timer = ScheduledCall(at_us, callback, args, context or copy_context())
        self._number += 1
        heappush(self._timers, (at_us, self._number, timer))
        return timer

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """What would be done in a thread is done at once: threads would make every simulation another one."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is told to whoever waits
            done.set_exception(error)
        return done

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        self._ring(ready)
        calls = [ready.popleft() for _ in range(len(ready))]
        if len(calls) > 1:
            calls.sort(key=_maker)  # a group of tasks is cancelled in the order of a set, which is anybody's guess
            self._random.shuffle(calls)
        for call in calls:
            if not call.is_cancelled:
                try:
                    call.context.run(call.callback, *call.args)
                except Exception as error:  # noqa: BLE001 - as the loop of asyncio does
                    self.call_exception_handler({"message": f"in {call.callback}", "exception": error})

    def _make(self, _: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **settings: Any) -> SimTask:
        task = SimTask(work, loop=self, **settings)
        self._made += 1
        task.number = self._made
        return task

    def _ring(self, ready: Any) -> None:
        """Add the timers that are due; if nothing else is to do, jump to the next."""
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heappop(timers)
        self._steps += 1
        if not ready and not timers:
            raise Deadlock("every task waits, and no timer is set")
        if not ready and timers[0][0] > self._virtual_us:
            self._virtual_us = timers[0][0]
        elif self._steps % STEPS == 0:
            self._virtual_us += 1
        while timers and timers[0][0] <= self._virtual_us:
            ready.append(heappop(timers)[2])


def _maker(call: ScheduledCall) -> int:
    """The number of the task that a callback continues; 0: none."""
    task = getattr(call.callback, "__self__", None)
    return task.number if isinstance(task, SimTask) else 0


class SimClock(VirtualClock):
    def __init__(self, loop: SimLoop, seed: int, *, name: str = "", skew_s: float = 0.0) -> None:
        super().__init__(loop, seed, EPOCH, name=name, skew_s=skew_s)


def simulate(main: Callable[[SimLoop], Coroutine[Any, Any, T]], *, seed: int) -> T:
    with asyncio.Runner(loop_factory=lambda: SimLoop(seed)) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SimLoop)
        return runner.run(main(loop))


class HostClock(SimClock):
    """The clock of a host. Its wall clock is off and may be set; drift makes all its clocks go wrong alike."""

    def __init__(self, loop: SimLoop, seed: int, name: str, skew_s: float) -> None:
        super().__init__(loop, seed, name=name)
        self._skew_s = skew_s
        self._rate = 1.0
        self._base_s = self._since_s = 0.0

    def monotonic(self) -> float:
        return self._base_s + (self._loop.time() - self._since_s) * self._rate

    def wall(self) -> datetime:
        return EPOCH + timedelta(seconds=self.monotonic() + self._skew_s)

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / self._rate)

    def after(self, seconds: float) -> float:
        """When this clock will have gone on for so long, in the time of the simulation."""
        return self._loop.time() + seconds / self._rate

    def step(self, seconds: float) -> None:
        """Set the wall clock."""
        self._skew_s += seconds

    def drift(self, part: float) -> None:
        """Go wrong by this part from now on."""
        self._base_s, self._since_s = self.monotonic(), self._loop.time()
        self._rate = 1.0 + part


class StoreClock(SimClock):
    """The clock that decides."""

    def step(self, seconds: float) -> None:
        """Jump forward."""
        self._epoch += timedelta(seconds=seconds)
