"""What a person with a plain client, or a lost disk, can do to the entries of a coordinator."""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.request
from collections.abc import Callable
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from sqlalchemy import Connection, delete, insert, select, update

from rota.coordinators.memory import MemoryCoordinator
from rota.coordinators.sql.coordinator import SqlCoordinator
from rota.model.entry import Entry, folder_of
from rota.model.folders import CLAIMED, LASTING
from rota.ports import Coordinator
from rota.storage.sql import schema

GARBLED = '{"epoch": "x'
SESSION, COUNTER = ".session/", ".counter"
FAR_AHEAD = 10**12
E, S, C = schema.entry.c, schema.session.c, schema.counter.c


class Damage(Protocol):
    """Changes entries behind the back of whoever wrote them."""

    async def delete(self, key: str) -> None: ...

    async def garble(self, key: str, value: str = GARBLED) -> None:
        """Replace the text of an entry; whose claim it is stays."""

    async def replace(self, key: str, value: str) -> None:
        """Put an entry that lasts in the place of what is there."""

    async def seize(self, key: str, value: str) -> None:
        """Put a claim of somebody else in the place of what is there; of one that does not exist, where that can be."""

    async def hidden(self) -> list[str]:
        """What the coordinator keeps beside the entries, named as keys that begin with a dot; and what is like it."""

    async def wipe(self) -> None:
        """Remove everything."""

    async def close(self) -> None: ...


class MemoryDamage:
    """Hidden: `.session/ID`, until when a session lives."""

    def __init__(self, coordinator: MemoryCoordinator) -> None:
        self._realm = coordinator._realm

    async def delete(self, key: str) -> None:
        if key.startswith(SESSION):
            self._realm.sessions.pop(key.removeprefix(SESSION), None)
        elif key in self._realm.entries:
            self._realm.remove(key)

    async def garble(self, key: str, value: str = GARBLED) -> None:
        if key.removeprefix(SESSION) in self._realm.sessions:
            self._realm.sessions[key.removeprefix(SESSION)] = -1.0
        elif (entry := self._realm.entries.get(key)) is not None:
            self._realm.write(key, value, entry.session, entry.fence)

    async def replace(self, key: str, value: str) -> None:
        if key.startswith(SESSION):
            self._realm.sessions[key.removeprefix(SESSION)] = FAR_AHEAD
        else:
            self._realm.write(key, value)

    async def seize(self, key: str, value: str) -> None:
        if key.startswith(SESSION):
            await self.replace(key, value)
        else:
            self._realm.write(key, value, "nobody")

    async def hidden(self) -> list[str]:
        return [f"{SESSION}{it}" for it in (*self._realm.sessions, "ghost")]

    async def wipe(self) -> None:
        for key in list(self._realm.entries):
            self._realm.remove(key)
        self._realm.sessions.clear()

    async def close(self) -> None: ...


class SqlDamage:
    """Hidden: `.session/ID`, the rows of sessions; `.counter`, the number of the next write."""

    def __init__(self, coordinator: SqlCoordinator) -> None:
        self._db = coordinator._db

    async def delete(self, key: str) -> None:
        row = delete(schema.entry).where(E.key == key)
        if key.startswith(SESSION):
            row = delete(schema.session).where(S.id == key.removeprefix(SESSION))
        elif key == COUNTER:
            row = delete(schema.counter).where(C.name == "entry")
        await self._do(row)

    async def garble(self, key: str, value: str = GARBLED) -> None:
        row = update(schema.entry).where(E.key == key).values(value=value, version=E.version + 1)
        if key.startswith(SESSION):
            row = update(schema.session).where(S.id == key.removeprefix(SESSION)).values(until_at=0)
        elif key == COUNTER:
            row = update(schema.counter).where(C.name == "entry").values(next=1)
        await self._do(row)

    async def replace(self, key: str, value: str) -> None:
        if key.startswith(SESSION):
            session, until_us = key.removeprefix(SESSION), FAR_AHEAD * 1_000_000
            await self._do(
                delete(schema.session).where(S.id == session),
                insert(schema.session).values(id=session, until_at=until_us),
            )
        elif key == COUNTER:
            await self._do(update(schema.counter).where(C.name == "entry").values(next=C.next + 10**12))
        else:
            await self._put(key, value, None)

    async def seize(self, key: str, value: str) -> None:
        if key.startswith("."):
            await self.replace(key, value)
        else:
            await self._put(key, value, "nobody")

    async def hidden(self) -> list[str]:
        found = await self._db.read(lambda conn: conn.scalars(select(S.id)).all())
        return [COUNTER, *(f"{SESSION}{it}" for it in (*found, "ghost"))]

    async def wipe(self) -> None:
        await self._do(delete(schema.entry), delete(schema.session), delete(schema.counter).where(C.name == "entry"))

    async def lose_sessions(self) -> None:
        await self._do(delete(schema.session))

    async def close(self) -> None: ...

    async def _put(self, key: str, value: str, session: str | None) -> None:
        row = {"folder": folder_of(key), "value": value, "version": 10**9, "session_id": session, "fence": 1}
        await self._do(delete(schema.entry).where(E.key == key), insert(schema.entry).values(key=key, **row))

    async def _do(self, *statements: Any) -> None:
        def work(conn: Connection) -> None:
            conn.scalars(select(C.next).where(C.name == "entry").with_for_update()).all()
            for statement in statements:
                conn.execute(statement)

        await self._db.write(work)


class ZooKeeperDamage:
    """Hidden: the marks of folders."""

    def __init__(self, port: int, namespace: str) -> None:
        self._client = KazooClient(f"127.0.0.1:{port}", timeout=60.0)
        self._root = f"/{namespace}"
        self._client.start()

    async def delete(self, key: str) -> None:
        await self._do(self._delete, key)

    async def garble(self, key: str, value: str = GARBLED) -> None:
        await self._do(self._set, key, value)

    async def replace(self, key: str, value: str) -> None:
        await self._do(self._put, key, value, ephemeral=False)

    async def seize(self, key: str, value: str) -> None:
        await self._do(self._put, key, value, ephemeral=True)

    async def hidden(self) -> list[str]:
        def marks() -> list[str]:
            there = [it for it in self._client.get_children(self._root) if it.startswith(".")]
            folders = {f".{folder}" for folder in (*LASTING, *CLAIMED)}
            return sorted({*there, *folders, ".shard", ".ghost", "jobs/.1", "live/.a", "election/.leader"})

        return await asyncio.to_thread(marks)

    async def wipe(self) -> None:
        await self._do(self._client.delete, self._root, recursive=True)

    async def close(self) -> None:
        await asyncio.to_thread(self._client.stop)
        await asyncio.to_thread(self._client.close)

    def _delete(self, key: str) -> None:
        path = f"{self._root}/{key}"
        if not self._client.exists(path):
            return
        if self._client.get_children(path):
            self._client.set(path, b"")
        else:
            self._client.delete(path)

    def _set(self, key: str, value: str) -> None:
        if self._client.exists(path := f"{self._root}/{key}"):
            self._client.set(path, value.encode())

    def _put(self, key: str, value: str, *, ephemeral: bool) -> None:
        """A node with others below it cannot be a claim: there it is one that lasts."""
        path = f"{self._root}/{key}"
        self._delete(key)
        try:
            self._client.create(path, value.encode(), ephemeral=ephemeral, makepath=True)
        except NodeExistsError:
            self._client.set(path, value.encode())

    async def _do(self, deed: Callable[..., object], *args: Any, **settings: Any) -> None:
        """Others delete and create at the same time."""
        for _ in range(20):
            try:
                await asyncio.to_thread(deed, *args, **settings)
            except (NoNodeError, NodeExistsError):
                continue
            except Exception as error:
                if type(error).__name__ == "NotEmptyError":
                    continue
                raise
            return


class EtcdDamage:
    """Hidden: `.sessions/LEASE`, the marks of sessions."""

    def __init__(self, port: int, namespace: str) -> None:
        self._url = f"http://127.0.0.1:{port}/v3"
        self._prefix = f"{namespace}/"

    async def delete(self, key: str) -> None:
        await self._ask("kv/deleterange", key=_text(self._prefix + key))

    async def garble(self, key: str, value: str = GARBLED) -> None:
        found = await self._ask("kv/range", key=_text(self._prefix + key))
        if found.get("kvs"):
            await self._ask("kv/put", key=_text(self._prefix + key), value=_text(value), ignore_lease=True)

    async def replace(self, key: str, value: str) -> None:
        await self._ask("kv/put", key=_text(self._prefix + key), value=_text(value))

    async def seize(self, key: str, value: str) -> None:
        lease = (await self._ask("lease/grant", TTL=600))["ID"]
        await self.delete(key)
        await self._ask("kv/put", key=_text(self._prefix + key), value=_text(value), lease=lease)

    async def hidden(self) -> list[str]:
        below = f"{self._prefix}.sessions/"
        found = await self._ask("kv/range", key=_text(below), range_end=_text(below[:-1] + "0"), keys_only=True)
        keys = [base64.b64decode(it["key"]).decode().removeprefix(self._prefix) for it in found.get("kvs", ())]
        return [*keys, ".sessions/ghost", ".sessions"]

    async def wipe(self) -> None:
        last = self._prefix[:-1] + "0"
        await self._ask("kv/deleterange", key=_text(self._prefix), range_end=_text(last))

    async def close(self) -> None: ...

    async def _ask(self, verb: str, **body: Any) -> dict[str, Any]:
        def ask() -> dict[str, Any]:
            request = urllib.request.Request(f"{self._url}/{verb}", data=json.dumps(body).encode())
            with urllib.request.urlopen(request, timeout=10) as answer:
                return dict(json.load(answer))

        return await asyncio.to_thread(ask)


def _text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def damage_of(coordinator: Coordinator) -> Damage:
    """For a coordinator that comes with a store."""
    if isinstance(coordinator, MemoryCoordinator):
        return MemoryDamage(coordinator)
    assert isinstance(coordinator, SqlCoordinator)
    return SqlDamage(coordinator)


def is_claim(entry: Entry | None) -> bool:
    return entry is not None and entry.session is not None
