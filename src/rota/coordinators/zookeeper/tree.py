"""How entries lie in ZooKeeper's tree: each key is a path below the namespace.

A node has the text of its entry as it is, for people and plain clients to read. A node without any data is a folder
that nobody has put: ZooKeeper wants a parent for each node. So an entry that is empty, or begins with a NUL, is written
behind a NUL.

A folder that nobody has put has no data, and a mark beside it: `queue/.events` says that `queue/events` is a folder
only. Node and mark are made, and parted, in one transaction; so the keys of a folder are known from the names in it,
however many they are. What has a mark is looked at: somebody else may have made it. No key begins with a dot.

ZooKeeper compares the edition of a node's data, which begins anew when a node is made again. What is given by version
or fence is compared with what was just read, and the edition guards the moment in between: who deletes and makes a
node anew within that moment goes unnoticed.

Claims are ephemeral nodes of the session that a link is. What is not this session's own is never changed by them. Many
at a time are one transaction, for as a rule all of them can be done. If one cannot, nothing was done, and each is tried
by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from rota.errors import InvalidInput
from rota.model.entry import Entry, folder_of

if TYPE_CHECKING:
    from rota.coordinators.zookeeper.link import Link


TOGETHER_MAX = 256_000
"""How many bytes one transaction may write: ZooKeeper takes requests of a million."""
_NUL = b"\0"
_UNSIGNED = 2**64 - 1


class No(Enum):
    """Why a node was not read or written: an answer, not a failure."""

    MISSING = auto()
    EXISTS = auto()
    CHANGED = auto()
    HAS_CHILDREN = auto()
    BELOW_CLAIM = auto()


class Znode(NamedTuple):
    """A node as it was read or written."""

    data: bytes
    edition: int
    """How often its data was written since it was created: what ZooKeeper compares."""
    created: int
    written: int
    """The transactions that created it and that wrote it last; they only rise."""
    owner: int
    """The session that it ends with; 0: it lasts."""

    @property
    def is_folder_only(self) -> bool:
        """Whether nobody has put it."""
        return not self.data and not self.owner


def session_name(session: int) -> str:
    """The name of a session, as ZooKeeper's own tools write it."""
    return f"0x{session & _UNSIGNED:x}"


def encoded(value: str) -> bytes:
    data = value.encode()
    return _NUL + data if not data or data.startswith(_NUL) else data


def decoded(data: bytes) -> str:
    """Data that somebody else wrote may be no text: it is shown as well as can be."""
    return data.removeprefix(_NUL).decode(errors="replace")


def entry_of(key: str, node: Znode | No) -> Entry | None:
    """The entry that a node is, if it is one."""
    if isinstance(node, No) or node.is_folder_only:
        return None
    session, fence = (session_name(node.owner), node.created) if node.owner else (None, 0)
    return Entry(key=key, value=decoded(node.data), version=node.written, session=session, fence=fence)


class ZnodeTree:
    """The entries of one namespace. Each verb is given the link to use."""

    def __init__(self, root: str) -> None:
        self.root = root

    def path(self, key: str) -> str:
        return f"{self.root}/{key}" if key else self.root

    def key(self, path: str) -> str | None:
        """The key of a path; none for a mark."""
        key = path[len(self.root) + 1 :]
        return None if key.rpartition("/")[2].startswith(".") else key

    async def nodes(self, link: Link, keys: Iterable[str]) -> dict[str, Znode | No]:
        """Read some nodes, in a state that has all that was done before: requests are answered in their order, so the
        first may have the server catch up."""
        wanted = tuple(keys)
        _, found = await asyncio.gather(link.sync(self.root), self._got(link, wanted))
        return dict(zip(wanted, found, strict=True))

    async def node(self, link: Link, key: str) -> Znode | No:
        return (await self.nodes(link, [key]))[key]

    async def keys(self, link: Link, folder: str) -> frozenset[str]:
        """The keys of the entries directly in a folder."""
        _, names = await asyncio.gather(link.sync(self.root), link.children(self.path(folder)))
        marks = {name for name in names if name.startswith(".")}
        keys = {f"{folder}/{name}" if folder else name: f".{name}" in marks for name in names if name not in marks}
        marked = [key for key, has_mark in keys.items() if has_mark]
        entries = {key for key, node in zip(marked, await self._got(link, marked), strict=True) if entry_of(key, node)}
        return frozenset(key for key, has_mark in keys.items() if not has_mark or key in entries)

    async def entries(self, link: Link, keys: Iterable[str]) -> list[Entry]:
        """Those of the keys that are entries."""
        found = await self.nodes(link, keys)
        return [entry for key, node in found.items() if (entry := entry_of(key, node))]

    async def create(self, link: Link, values: Mapping[str, str], *, ephemeral: bool) -> dict[str, Znode | No]:
        """Create nodes, and the folders that they need."""
        asked = (link.create(self.path(key), encoded(value), ephemeral=ephemeral) for key, value in values.items())
        answers = dict(zip(values, await asyncio.gather(*asked), strict=True))
        homeless = {key: values[key] for key, it in answers.items() if it is No.MISSING}
        for folder in {folder_of(key) for key in homeless}:
            await self._make(link, self.path(folder))
        if No.BELOW_CLAIM in answers.values():
            raise _below_claim()
        return answers | (await self.create(link, homeless, ephemeral=ephemeral) if homeless else {})

    async def put(self, link: Link, key: str, value: str, version: int | None) -> int | None:
        """Write an entry that lasts, if its version is right; says its new one."""
        while True:
            node = await self.node(link, key)
            found = entry_of(key, node)
            if (found and found.session) or version not in (None, found.version if found else 0):
                return None
            answer = await self._write(link, key, node, value)
            if isinstance(answer, int):
                return answer

    async def delete(self, link: Link, key: str, version: int) -> bool:
        """Remove an entry if its version is right. One with others below it becomes a folder only."""
        node = await self.node(link, key)
        found = entry_of(key, node)
        if isinstance(node, No) or found is None or found.version != version:
            return False
        path = self.path(key)
        answer: No | int | None = await link.delete(path, node.edition)
        if answer is No.HAS_CHILDREN:
            marking = [] if await self._has_mark(link, path) else [("create", _mark(path))]
            answer = await link.together(("set_data", path, b"", node.edition), *marking)
        return not isinstance(answer, No)

    async def vacate(self, link: Link, key: str, node: Znode) -> None:
        """Remove a folder that nobody has put: its key is to be claimed, and a claim has nothing below it."""
        path = self.path(key)
        if await link.together(("delete", path, node.edition), *await self._unmarking(link, path)) is No.HAS_CHILDREN:
            raise InvalidInput.of("key", f"{key!r} has entries below it, so that it cannot be claimed in ZooKeeper")

    async def claim(self, link: Link, values: Mapping[str, str]) -> dict[str, int]:
        """Make claims of what is free; says the fences of all that this session has of these."""
        return await self._claim_all(link, values) or await self._claim_each(link, values)

    async def release(self, link: Link, fences: Mapping[str, int]) -> None:
        """Remove claims that this session still has; one whose value changes meanwhile is looked at again."""
        while fences:
            found = await self.nodes(link, fences)
            held = {key: it for key, it in found.items() if isinstance(it, Znode) and _holds(link, it, fences[key])}
            if held and await link.together(*(("delete", self.path(key), it.edition) for key, it in held.items())) == 0:
                return
            done = await asyncio.gather(*(link.delete(self.path(key), it.edition) for key, it in held.items()))
            fences = {key: fences[key] for key, answer in zip(held, done, strict=True) if answer is No.CHANGED}

    async def update(self, link: Link, key: str, fence: int, value: str) -> bool:
        """Change the value of a claim; False: this session has it no more."""
        while True:
            node = await self.node(link, key)
            if isinstance(node, No) or not _holds(link, node, fence):
                return False
            answer = await link.set(self.path(key), encoded(value), node.edition)
            if answer is not No.CHANGED:
                return isinstance(answer, Znode)

    async def _claim_all(self, link: Link, values: Mapping[str, str]) -> dict[str, int]:
        """All, or none."""
        deeds = [("create", self.path(key), encoded(value), None, True) for key, value in values.items()]
        if (
            len(deeds) < 2
            or sum(len(data) for _, _, data, *_ in deeds) > TOGETHER_MAX
            or await link.together(*deeds) != 0
        ):
            return {}
        first = await self.node(link, next(iter(values)))
        if isinstance(first, No) or first.owner != link.number:
            return {}  # it was taken away meanwhile, and others may have been
        return dict.fromkeys(values, first.created)  # one transaction, one number

    async def _claim_each(self, link: Link, values: Mapping[str, str]) -> dict[str, int]:
        made = await self.create(link, values, ephemeral=True)
        taken = [key for key, it in made.items() if it is No.EXISTS]
        found = await self.nodes(link, taken) if taken else {}
        won = {
            key: it.created for key, it in (made | found).items() if isinstance(it, Znode) and it.owner == link.number
        }
        folders = {key: it for key, it in found.items() if isinstance(it, Znode) and it.is_folder_only}
        for key, node in folders.items():
            await self.vacate(link, key, node)
        return won | (await self._claim_each(link, {key: values[key] for key in folders}) if folders else {})

    async def _got(self, link: Link, keys: Iterable[str]) -> list[Znode | No]:
        return await asyncio.gather(*(link.get(self.path(key)) for key in keys))

    async def _write(self, link: Link, key: str, node: Znode | No, value: str) -> int | No:
        """Write a node over what was read; says the transaction."""
        path, data = self.path(key), encoded(value)
        if isinstance(node, No):
            answer = (await self.create(link, {key: value}, ephemeral=False))[key]
        elif node.is_folder_only:
            return await link.together(("set_data", path, data, node.edition), *await self._unmarking(link, path))
        else:
            answer = await link.set(path, data, node.edition)
        return answer if isinstance(answer, No) else answer.written

    async def _make(self, link: Link, path: str) -> None:
        """Make a folder, with its mark unless it is above the keys, and those above it that are missing."""
        marks = [("create", _mark(path))] if path.startswith(f"{self.root}/") else []
        while (answer := await link.together(("create", path), *marks)) is No.MISSING:
            await self._make(link, path.rpartition("/")[0])
        if answer is No.EXISTS and marks:  # the folder, or a mark that somebody else has made
            await link.create(path, b"")
        if answer is No.BELOW_CLAIM:
            raise _below_claim()

    async def _unmarking(self, link: Link, path: str) -> list[tuple[str, str]]:
        """The deed that removes a folder's mark; somebody else's folder has none."""
        return [("delete", _mark(path))] if await self._has_mark(link, path) else []

    async def _has_mark(self, link: Link, path: str) -> bool:
        return not isinstance(await link.get(_mark(path)), No)


def _mark(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}"


def _below_claim() -> InvalidInput:
    return InvalidInput.of("key", "it is below a claim, and ZooKeeper keeps nothing below a claim")


def _holds(link: Link, node: Znode, fence: int) -> bool:
    return node.owner == link.number and node.created == fence
