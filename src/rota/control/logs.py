"""Logs: the kept output of attempts, also while they run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from rota.control.survey import Family
from rota.errors import LogUnreadable, NotFound, Refused
from rota.model.run import Item, LogKey
from rota.model.states import ItemState, Outcome
from rota.model.work import AttemptRecord
from rota.ports import Clock, LogStore, Store

CHUNK = 64 * 1024
LOOK_S = 0.2
ASK_S = 1.0


class LogPiece(NamedTuple):
    """Some output of one attempt, in order; `of` is how many items there are to read. A note is a remark of rota's, no
    output; `why` says at the end how an attempt ended that did not succeed."""

    item: Item
    attempt: int
    offset: int
    data: bytes
    note: str = ""
    of: int = 1
    why: str = ""


class LogControl(Family):
    def __init__(self, store: Store, clock: Clock, logs: LogStore | None) -> None:
        super().__init__(store, clock)
        self._logs = logs

    async def read(
        self, run_id: int, *, item: int | None = None, attempt: int | None = None, follow: bool = False
    ) -> AsyncIterator[LogPiece]:
        """The output of a run's items, in their order (`item` is the place of one in it; default: all), of their
        latest attempt unless another is named. With `follow`, goes on until the attempt has ended."""
        if self._logs is None:
            raise Refused("there is no place for logs here; see: rota config show (logs.path)")
        items = await self._items_asked(run_id, item)
        for each in items:
            async for piece in self._log(self._logs, each, attempt, follow=follow):
                yield piece._replace(of=len(items))

    async def _items_asked(self, run_id: int, item: int | None) -> tuple[Item, ...]:
        if await self._store.run(run_id) is None:
            raise NotFound(f"there is no run {run_id}; see: rota run list")
        items = await self._store.items(run_id)
        if item is None:
            return items
        if not 0 <= item < len(items):
            has = f"items 0 to {len(items) - 1}" if items else "no items"
            raise NotFound(f"run {run_id} has no item {item}; it has {has}")
        return (items[item],)

    async def _log(self, logs: LogStore, item: Item, wanted: int | None, *, follow: bool) -> AsyncIterator[LogPiece]:
        current, ended = await self._attempt(item, wanted)
        while follow and current == 0 and not ended:
            await self._clock.sleep(LOOK_S)
            current, ended = await self._attempt(item, wanted)
        if current == 0:
            yield LogPiece(
                item, 0, 0, b"", "[no attempt was made yet]" if wanted is None else f"[there is no attempt {wanted}]"
            )
            return
        key = LogKey(item.run_id, item.id, current)
        offset, asked_s = 0, self._clock.monotonic()
        while True:
            try:
                while data := logs.read(key, offset, CHUNK):
                    yield LogPiece(item, current, offset, data)
                    offset += len(data)
            except LogUnreadable as error:
                yield LogPiece(item, current, offset, b"", f"[{error}]")
                return
            if ended or not follow:
                break
            await self._clock.sleep(LOOK_S)
            if self._clock.monotonic() - asked_s >= ASK_S:
                ended, asked_s = (await self._attempt(item, current))[1], self._clock.monotonic()
        if ended and (note := await self._gap(logs, key, offset)):
            yield LogPiece(item, current, offset, b"", note)
        if ended and (why := await self._why(key)):
            yield LogPiece(item, current, offset, b"", why=why)

    async def _why(self, key: LogKey) -> str:
        """Say how an attempt ended if it did not succeed."""
        record = await self._record(key)
        if record is None or record.outcome == Outcome.SUCCEEDED:
            return ""
        why = record.message or ("" if record.code is None else f"exit code {record.code}")
        return f"[attempt {key.attempt} {record.outcome}{f': {why}' if why else ''}]"

    async def _attempt(self, item: Item, wanted: int | None) -> tuple[int, bool]:
        """Return the attempt to read (0: there is none), and whether it is over."""
        queued = await self._store.queued(item_ids=[item.id])
        under_way = bool(queued) and queued[0].state in (ItemState.ASSIGNED, ItemState.RUNNING)
        ended = () if queued else await self._store.attempts(item.run_id)
        tried = [it.attempt for it in ended if it.item_id == item.id]
        latest = queued[0].attempt if queued else max(tried, default=0)
        number = latest if wanted is None else wanted
        if number > latest:
            return 0, not queued
        over = number < latest or not under_way
        return number, over and (number > 0 or not queued)

    async def _gap(self, logs: LogStore, key: LogKey, read: int) -> str:
        """Return the note for an attempt that is over and whose output is incomplete."""
        total = logs.total(key)
        if total is not None and read >= total:
            return ""
        record = await self._record(key)
        if total is None and record is not None and record.outcome == "lost":
            return f"[output after byte {read} was lost with its host]"
        if record is None or record.log_bytes <= read:
            return ""
        where = f"; it ran on node {record.node}" if record.node else ""
        return f"[{record.log_bytes - read} more bytes are missing in this log store{where}]"

    async def _record(self, key: LogKey) -> AttemptRecord | None:
        ended = await self._store.attempts(key.run_id)
        return next((it for it in ended if (it.item_id, it.attempt) == (key.item_id, key.attempt)), None)
