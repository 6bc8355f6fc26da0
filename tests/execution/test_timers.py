"""One heap and one timer for all that is waited for."""

import asyncio

from rota.execution.timers import SPARE, Timers


class Waiter:
    def __init__(self) -> None:
        self.over = False
        self.calls: list[int] = []
        self.done = asyncio.Event()

    def on_timer(self, step: int) -> None:
        self.calls.append(step)
        self.done.set()


async def test_waiters_are_called_in_the_order_of_their_instants() -> None:
    loop = asyncio.get_running_loop()
    timers, waiter, last = Timers(loop), Waiter(), Waiter()
    now = loop.time()
    for what, delay_s in ((3, 0.03), (1, 0.01), (2, 0.02)):
        timers.at(now + delay_s, waiter, what)
    timers.at(now + 0.04, last)
    await last.done.wait()
    assert waiter.calls == [1, 2, 3]
    assert len(timers) == 0


async def test_who_is_over_is_not_called() -> None:
    loop = asyncio.get_running_loop()
    timers, over, last = Timers(loop), Waiter(), Waiter()
    timers.at(loop.time() + 0.01, over)
    timers.at(loop.time() + 0.02, last)
    over.over = True
    timers.dropped()
    await last.done.wait()
    assert over.calls == []


async def test_the_heap_stays_as_small_as_what_is_waited_for() -> None:
    loop = asyncio.get_running_loop()
    timers, kept = Timers(loop), Waiter()
    timers.at(loop.time() + 3600, kept)
    for _ in range(10 * SPARE):
        waiter = Waiter.__new__(Waiter)
        waiter.over = False
        timers.at(loop.time() + 1800, waiter)
        waiter.over = True
        timers.dropped()
    assert len(timers) <= 2 * SPARE + 1
    assert kept in [entry[2] for entry in timers._heap]
    timers.close()
