"""How an entry is written as a node of ZooKeeper, and read back.

A node has the text of its entry as it is, for people and plain clients to read. A node without any data is a folder
that nobody has put: it is there because ZooKeeper wants a parent for each node, and is no entry. So an entry that is
empty, or begins with a NUL, is written behind a NUL.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from rota.model.entry import Entry

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
