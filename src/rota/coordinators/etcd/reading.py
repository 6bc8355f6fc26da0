"""Reading entries, a page at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.coordinators.etcd.faults import Compacted
from rota.coordinators.etcd.session import name_of
from rota.coordinators.etcd.steps import RANGE, end_of
from rota.coordinators.etcd.wire import KeyValue, Range, Ranged
from rota.model.entry import Entry

if TYPE_CHECKING:
    from rota.coordinators.etcd.gateway import Gateway

PAGE = 5_000
"""How many keys one answer has at most."""


class Reader:
    """Reads below a prefix. Every answer has seen what was done before it was asked for."""

    def __init__(self, gateway: Gateway, prefix: str) -> None:
        self._gateway = gateway
        self._prefix = prefix

    async def entry(self, key: str) -> Entry | None:
        found = await self._ask(Range(key=f"{self._prefix}{key}".encode()))
        return self._entry(found.kvs[0]) if found.kvs else None

    async def entries(self, folder: str) -> tuple[Entry, ...]:
        return tuple(self._entry(kv) for kv in await self._children(folder))

    async def keys(self, folder: str) -> frozenset[str]:
        return frozenset(self._key(kv) for kv in await self._children(folder, keys_only=True))

    async def _children(self, folder: str, *, keys_only: bool = False) -> list[KeyValue]:
        below = f"{self._prefix}{folder}/".encode() if folder else self._prefix.encode()
        while True:
            try:
                return await self._pages(below, keys_only=keys_only)
            except Compacted:  # what the first page has shown is forgotten: read all of it anew
                continue

    async def _pages(self, below: bytes, *, keys_only: bool) -> list[KeyValue]:
        """What is directly below, all as it was in one moment."""
        found: list[KeyValue] = []
        start, revision, more = below, 0, True
        while more:
            page = await self._ask(
                Range(key=start, range_end=end_of(below), limit=PAGE, revision=revision, keys_only=keys_only)
            )
            found += [kv for kv in page.kvs if b"/" not in kv.key[len(below) :]]
            more, revision = page.more, revision or page.header.revision
            start = page.kvs[-1].key + b"\0" if page.kvs else start
        return found

    async def _ask(self, wish: Range) -> Ranged:
        return await self._gateway.ask(RANGE, wish, Ranged, again=True)

    def _key(self, kv: KeyValue) -> str:
        return kv.key.decode(errors="replace").removeprefix(self._prefix)

    def _entry(self, kv: KeyValue) -> Entry:
        value = kv.value.decode(errors="replace")
        if not kv.lease:
            return Entry(key=self._key(kv), value=value, version=kv.mod_revision)
        owner, fence = name_of(kv.lease), kv.create_revision
        return Entry(key=self._key(kv), value=value, version=kv.mod_revision, session=owner, fence=fence)
