"""Deliver: send messages, each in a task of its own, and write down what became of them.

    due ──take (fenced, for a while)──> on its way ──arrived, or not──> kept until written ──> settled

A channel that hangs or fails keeps only its own rule waiting. If this process dies between sending and writing, the
message is sent once more when its time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from rota.alarms.rules import Parcel, again_s
from rota.errors import Undelivered
from rota.model.alarm import AlarmRule, Settled
from rota.ports import Courier, Store
from rota.transactions.alarms import settle_deliveries, take_deliveries

SENDS_MAX = 16
CARRY_S = 45.0
"""How long a channel may take, whatever it promises."""
LEASE_S = 60.0
"""For how long nobody else sends what this node has taken."""
CLOSE_S = 3.0

log = structlog.get_logger()


class Deliverer:
    """Sends messages by the courier, and keeps what became of each until the store has taken it."""

    def __init__(self, store: Store, courier: Courier, *, wake: Callable[[], None]) -> None:
        self._store = store
        self._courier = courier
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._settled: list[Settled] = []
        self._wake = wake
        """Called when there is something to write."""
        self.sent = 0
        """Messages that arrived."""

    async def send(self, parcels: Sequence[Parcel], rules: Mapping[str, AlarmRule]) -> None:
        """Begin with what may begin: of each rule one at a time, and not too many in all."""
        for parcel in parcels:
            rule = rules[parcel.message.rule]
            if rule.name in self._under_way or len(self._under_way) >= SENDS_MAX:
                continue
            if await take_deliveries(self._store, parcel.deliveries, lease_s=LEASE_S):
                self._under_way[rule.name] = asyncio.create_task(self._carry(rule, parcel))

    async def settle(self) -> None:
        """Write what became of messages. What could not be written is kept."""
        settled = tuple(self._settled)
        if settled:
            await self._store.transact(settle_deliveries, settled)
        del self._settled[: len(settled)]

    async def close(self) -> None:
        """Let what is under way end, for a moment. What does not, is sent by another node later."""
        tasks = list(self._under_way.values())
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, rule: AlarmRule, parcel: Parcel) -> None:
        try:
            async with asyncio.timeout(CARRY_S):
                answer = await self._courier.send(rule, parcel.message)
            self._settled.append(Settled(deliveries=parcel.deliveries, answer=answer, arrived=True))
            self.sent += 1
        except (Undelivered, TimeoutError) as error:
            self._fail(rule, parcel, str(error) or "no answer in time")
        finally:
            del self._under_way[rule.name]
            self._wake()

    def _fail(self, rule: AlarmRule, parcel: Parcel, reason: str) -> None:
        tries = max(it.tries for it in parcel.deliveries) + 1
        pause_s = again_s(tries)
        log.warning("alarm.undelivered", rule=rule.name, reason=reason, tries=tries, again_in_s=pause_s)
        self._settled.append(Settled(deliveries=parcel.deliveries, answer=reason, arrived=False, again_s=pause_s))
