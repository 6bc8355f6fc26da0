"""Workers of one kind, and the attempts that wait for one of them.

A worker that has room takes what waits; while something waits, more workers are started, a few at a time, so that short
items are done by those that are there and long ones soon get a worker each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from rota.runners.boundary.order import TreeSpec
from rota.runners.endings import Ending
from rota.runners.hand import FILES_MAX, Hand
from rota.runners.live import Live
from rota.runners.room import Room
from rota.runners.shop import Shop
from rota.runners.stamps import AGE_S, Stamp, Stamps
from rota.runners.wire import Setup, Task

AGAIN_S = 1.0
"""How long nothing is started after a worker could not be, if there are others."""


class Route(NamedTuple):
    """Where the attempts of a task go."""

    pool: Pool
    task: Task


class Pool:
    """Workers that are alike: of one tenant, for one app, under the same bounds."""

    over = False

    def __init__(self, shop: Shop, room: Room, spec: TreeSpec, setup: Setup, stamps: Stamps, starting_max: int) -> None:
        self._shop = shop
        self._room = room
        self._spec = spec
        self._setup = setup
        self._starting_max = starting_max
        self._stamps = stamps
        self._look_s = 0.0
        self._waiting: deque[tuple[Live, Task]] = deque()
        self._hands: dict[Hand, asyncio.Task[None]] = {}
        self._free: list[Hand] = []
        self._starting = 0
        self._hired = 0
        self._is_patient = False

    @property
    def hands(self) -> list[Hand]:
        return list(self._hands)

    @property
    def is_empty(self) -> bool:
        return not self._hands and not self._waiting

    def add(self, live: Live, task: Task) -> None:
        """Let an attempt wait for a worker; `pump` follows."""
        self._waiting.append((live, task))

    def pump(self) -> None:
        """Give what waits to those who have room; start more of them if that is not enough."""
        waiting, free = self._waiting, self._free
        if waiting:
            self._retire_changed()
        while waiting and free:
            hand = free[-1]
            if hand.is_retiring or hand.over or hand.room == 0:
                free.pop()
                continue
            if batch := self._batch(hand.room):
                hand.give(batch)
        if waiting:
            self._hire()

    def freed(self, hand: Hand) -> None:
        if self._hands.get(hand) is not None and hand not in self._free:
            self._free.append(hand)
        if self._starting:
            self._count_starting()
        self.pump()
        if hand.busy == 0 and not hand.is_retiring and self._room.claims():
            hand.retire()

    def gone(self, hand: Hand, unborn: Ending | None) -> None:
        if self._hands.pop(hand, None) is None:
            return
        self._count_starting()
        if unborn is not None:
            self._missed(unborn)
        self._room.give_back()
        self.pump()

    def ring(self, what: int) -> None:
        """It may work better now than the last time."""
        self._is_patient = False
        self.pump()

    def idle(self) -> list[Hand]:
        """Workers with nothing to do, the longest idle first."""
        found = [hand for hand in self._free if hand.busy == 0 and not hand.is_retiring and not hand.over]
        return sorted(found, key=lambda hand: hand.idle_since)

    def kill(self) -> None:
        self._waiting.clear()
        for hand in self._hands:
            hand.kill()

    async def see_gone(self) -> None:
        if self._hands:
            await asyncio.wait(self._hands.values())

    def _batch(self, room: int) -> list[tuple[Live, Task]]:
        waiting = self._waiting
        batch: list[tuple[Live, Task]] = []
        while waiting and len(batch) < room:
            entry = waiting.popleft()
            if not entry[0].over:
                batch.append(entry)
        return batch

    def _retire_changed(self) -> None:
        """Workers that have loaded another version of the app, or of a module of its folder, get no more work."""
        now = self._shop.loop.time()
        if now < self._look_s:
            return
        self._look_s = now + AGE_S
        for hand in list(self._hands):
            if not hand.is_retiring and any(self._stamps.of(file, now) != look for file, look in hand.files.items()):
                hand.retire()

    def _files(self) -> dict[str, Stamp]:
        """How everything that a new worker is known to load looks now."""
        now = self._shop.loop.time()
        known = sorted({file for hand in self._hands for file in hand.files})[:FILES_MAX]
        return {file: self._stamps.of(file, now) for file in (*known, *filter(None, [self._setup.app]))}

    def _hire(self) -> None:
        while (
            not self._is_patient
            and self._starting < self._starting_max
            and len(self._waiting) > self._starting * self._setup.concurrency
            and self._room.take(self)
        ):
            self._starting += 1
            self._hired += 1
            spec = TreeSpec(
                argv=self._spec.argv,
                env=self._spec.env,
                bounds=self._spec.bounds,
                hold_s=self._spec.hold_s,
                label=f"{self._spec.label}.{self._hired}",
                channel=True,
            )
            hand = Hand(self._shop, self, spec, self._setup, self._files())
            self._hands[hand] = self._shop.loop.create_task(hand.run())

    def _count_starting(self) -> None:
        self._starting = sum(not hand.is_ready for hand in self._hands)

    def _missed(self, why: Ending) -> None:
        """A worker could not be started. If others can do what waits here, it waits for them; else it ends."""
        if any(hand.is_ready and not hand.is_retiring for hand in self._hands):
            self._is_patient = True
            self._shop.timers.at(self._shop.loop.time() + AGAIN_S, self)
            return
        waiting, self._waiting = self._waiting, deque()
        for live, _ in waiting:
            self._shop.desk.end(live, why, None)
