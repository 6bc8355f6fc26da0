"""Calls of tasks: send them, and wait for their results."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from rota.control.assigning import AssignControl, Assigned
from rota.control.survey import Family
from rota.errors import InvalidInput, NotFound, Refused, StoreUnavailable
from rota.model.job import JobName
from rota.model.run import Item
from rota.model.value import Json
from rota.model.work import ASSIGN_MAX, Assignment, NewTask
from rota.ports import Clock, Store

if TYPE_CHECKING:
    from rota.definitions.assignment import Call

FIRST_S = 0.01
GROWTH = 1.5
LONGEST_S = 0.5
LONGEST_HEARD_S = 2.0
"""Where the database says when something has ended."""
READ_MAX = 1000


class CallControl(Family):
    def __init__(self, store: Store, clock: Clock, assignments: AssignControl) -> None:
        super().__init__(store, clock)
        self._assignments = assignments

    async def send(self, name: JobName, call: Call, arguments: Sequence[Mapping[str, Json]]) -> Assigned:
        """Make one run, with one item for each set of arguments. The job need not be stored, unless it has a cap or a
        rate: that is counted by the job."""
        from rota.definitions.requests import run_key

        if not 1 <= len(arguments) <= ASSIGN_MAX:
            raise InvalidInput.of("arguments", f"must be 1 to {ASSIGN_MAX} calls at a time, not {len(arguments)}")
        key = token = self._clock.token()
        if call.key is not None:
            key = run_key(call.key)
        work = call.work
        if work.cap is not None or work.rate is not None:
            work = msgspec.structs.replace(work, job_id=await self._job_id(name))
        wanted = Assignment(
            key=key,
            work=work,
            tasks=tuple(NewTask(number=f"{token}.{n}", info=dict(it)) for n, it in enumerate(arguments)),
            start_at=call.start_at,
        )
        sent = await self._assignments.assigned(
            await self._timed(wanted, call), quota_must_exist=work.quota != "default"
        )
        if len(sent.items) != len(arguments):
            raise Refused(
                f"the key {key} was used before, for {len(sent.items)} calls of {name} in run {sent.id}; these are "
                f"{len(arguments)}; give them another key"
            )
        return sent

    def results(self) -> Results:
        """Return an object that waits for results, for any number of callers."""
        return Results(self._store, self._clock)

    async def _job_id(self, name: JobName) -> int:
        found = await self._store.named([name])
        if not found:
            raise Refused(
                f"{name} has a cap or a rate, which its job counts, and the job is not stored yet; start a node that "
                "has it, or apply it: rota job apply FILE"
            )
        return found[0].id

    async def _timed(self, wanted: Assignment, call: Call) -> Assignment:
        """Return the assignment with its start and end, which the call counts from now, by the store's clock."""
        if not call.start_in_s and not call.start_within_s:
            return wanted
        start_at = wanted.start_at or await self._store.now() + timedelta(seconds=call.start_in_s)
        end_at = start_at + timedelta(seconds=call.start_within_s)
        return msgspec.structs.replace(wanted, start_at=start_at, end_at=end_at)


class Results(Family):
    """Waits for the ends of items. One loop reads for all who wait: often at first, then more and more seldom; where
    the database can say that something has ended, as soon as it does."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, clock)
        self._waiting: dict[int, list[asyncio.Future[Item]]] = {}
        self._wake = asyncio.Event()
        self._pause_s = FIRST_S
        self._reading: asyncio.Task[None] | None = None
        self._listens = False

    async def ended(self, item_id: int) -> Item:
        """Wait until an item has ended. Raises NotFound if there is no such item (any more)."""
        future: asyncio.Future[Item] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(item_id, []).append(future)
        self._hasten()
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._read_on())
        try:
            return await future
        finally:
            self._forget(item_id, future)

    async def close(self) -> None:
        """Stop reading, and raise in every caller that still waits."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        self._fail(Refused("the client was closed while somebody waited for a result"))

    def _forget(self, item_id: int, future: asyncio.Future[Item]) -> None:
        others = [it for it in self._waiting.pop(item_id, []) if it is not future]
        if others:
            self._waiting[item_id] = others
        elif not self._waiting:
            self._wake.set()

    def _hasten(self) -> None:
        self._pause_s = FIRST_S
        self._wake.set()

    def _heard(self, topic: str) -> None:
        if topic in ("seats", "dispatch"):
            self._wake.set()

    async def _read_on(self) -> None:
        if self._store.hears and not self._listens:
            self._listens = True
            self._store.listen(self._heard)
        longest_s = LONGEST_HEARD_S if self._store.hears else LONGEST_S
        while self._waiting:
            self._wake.clear()
            try:
                if await self._read():
                    self._pause_s = FIRST_S
            except StoreUnavailable:
                self._pause_s = longest_s
            except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
                self._fail(error)
            if not self._waiting:
                return
            await self._clock.sleep(FIRST_S)  # at least so long, however often the database wakes us
            try:
                async with asyncio.timeout(self._pause_s):
                    await self._wake.wait()
            except TimeoutError:
                self._pause_s = min(self._pause_s * GROWTH, longest_s)

    async def _read(self) -> bool:
        """Wake the callers whose items have ended. Returns True if there were any."""
        wanted = list(self._waiting)
        any_ended = False
        for begin in range(0, len(wanted), READ_MAX):
            part = wanted[begin : begin + READ_MAX]
            found = {item.id: item for item in (await self._store.loads(part)).items}
            for item_id in part:
                item = found.get(item_id)
                if item is None or item.ended_at is not None:
                    any_ended = True
                    self._hand_out(item_id, item)
        return any_ended

    def _hand_out(self, item_id: int, item: Item | None) -> None:
        for future in self._waiting.pop(item_id, []):
            if future.done():
                continue
            if item is None:
                future.set_exception(NotFound(f"there is no item {item_id}; its result was pruned with its run"))
            else:
                future.set_result(item)

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in (it for several in waiting.values() for it in several if not it.done()):
            future.set_exception(error)
