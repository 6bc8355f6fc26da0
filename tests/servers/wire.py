"""Reads just enough of the PostgreSQL and MySQL protocols to find a commit and the end of the server's reply to it.

A `Wire` cuts what a client sends into whole messages, however the network cut it, and knows which of them ask for a
commit: a COMMIT that is sent as a plain query, as asyncpg and asyncmy do; and on PostgreSQL a prepared statement that
writes outside a transaction, for it commits by itself. Encrypted sessions and other protocols pass uncut and without
any commit.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol

_COMMIT = re.compile(rb"(?:\A|;)\s*COMMIT\b", re.IGNORECASE)
_BEGIN = re.compile(rb"\A\s*(?:BEGIN|START TRANSACTION)\b", re.IGNORECASE)
_END = re.compile(rb"(?:\A|;)\s*(?:COMMIT|ROLLBACK|END)\b", re.IGNORECASE)
_WRITES = re.compile(rb"\b(?:INSERT\s+INTO|UPDATE\s+\w+|DELETE\s+FROM)\b", re.IGNORECASE)
_TLS_HANDSHAKE = b"\x16"
_STARTUP_HEAD = 8  # PostgreSQL: the length, and a version or a request
_STARTUP_START = b"\0\0"  # no client starts with a message of 64 KiB
_GREETING_HEAD = 5  # MySQL: the length, sequence 0, and protocol version 10


class Message(NamedTuple):
    """Bytes that are sent on together."""

    data: bytes
    asks_for_commit: bool = False


class Wire(Protocol):
    """One connection's protocol, as far as it is understood."""

    def cut(self, chunk: bytes) -> Iterator[Message]:
        """The whole messages that the client has sent with this chunk and what was left of the chunks before it."""
        ...

    def ends_reply(self, reply: bytes) -> bool:
        """Whether what the server has sent since the commit holds its whole reply."""
        ...


class OpaqueWire:
    """A protocol that is not understood: everything passes, nothing is a commit."""

    def cut(self, chunk: bytes) -> Iterator[Message]:
        yield Message(chunk)

    def ends_reply(self, reply: bytes) -> bool:
        return bool(reply)


class PostgresWire:
    """PostgreSQL 3: a type byte and a length before each message, but only a length before there is a session."""

    STARTUP_MAJOR = 3
    REQUESTS_MAJOR = 1234  # encryption and cancel requests carry it in place of a version

    def __init__(self) -> None:
        self._rest = b""
        self._in_session = False
        self._is_encrypted = False
        self._in_transaction = False
        self._writing: dict[bytes, bool] = {}
        """Whether a prepared statement writes, by its name."""

    def cut(self, chunk: bytes) -> Iterator[Message]:
        self._rest += chunk
        self._is_encrypted |= not self._in_session and self._rest[:1] == _TLS_HANDSHAKE
        if self._is_encrypted:
            yield Message(self._rest)
            self._rest = b""
        while (size := self._size_of_next()) is not None:
            data, self._rest = self._rest[:size], self._rest[size:]
            yield Message(data, asks_for_commit=self._in_session and self._commits(data[:1], data[5:]))
            self._in_session |= _postgres_major(data) == self.STARTUP_MAJOR

    def _commits(self, kind: bytes, body: bytes) -> bool:
        match kind:
            case b"Q":
                self._in_transaction = bool(_BEGIN.search(body)) or (self._in_transaction and not _END.search(body))
                return _is_commit(body)
            case b"P":
                name, _, text = body.partition(b"\0")
                self._writing[name] = _WRITES.search(text) is not None
            case b"B":
                _portal, name, *_ = body.split(b"\0", 2)
                return self._writing.get(name, False) and not self._in_transaction
        return False

    def _size_of_next(self) -> int | None:
        head = 1 if self._in_session else 0
        if len(self._rest) < head + 4:
            return None
        size = head + int.from_bytes(self._rest[head : head + 4], "big")
        return size if len(self._rest) >= size else None

    def ends_reply(self, reply: bytes) -> bool:
        """The reply to a query ends with the message Z, "ready for the next one"."""
        while len(reply) >= 5:
            size = 1 + int.from_bytes(reply[1:5], "big")
            if reply[:1] == b"Z":
                return len(reply) >= size
            reply = reply[size:]
        return False


class MysqlWire:
    """MySQL: three bytes of length and one of sequence before each packet; a command starts at sequence 0."""

    COM_QUERY = 3
    CLIENT_SSL = 0x800
    _SSL_REQUEST_SIZE = 36

    def __init__(self) -> None:
        self._rest = b""
        self._is_encrypted = False

    def cut(self, chunk: bytes) -> Iterator[Message]:
        self._rest += chunk
        while not self._is_encrypted and (size := _mysql_size(self._rest)) is not None:
            data, self._rest = self._rest[:size], self._rest[size:]
            is_query = data[3] == 0 and data[4:5] == bytes([self.COM_QUERY])
            yield Message(data, asks_for_commit=is_query and _is_commit(data[5:]))
            self._is_encrypted = self._asks_for_tls(data)
        if self._is_encrypted and self._rest:
            yield Message(self._rest)
            self._rest = b""

    def _asks_for_tls(self, packet: bytes) -> bool:
        is_second = packet[3] == 1 and len(packet) == self._SSL_REQUEST_SIZE
        return is_second and bool(int.from_bytes(packet[4:8], "little") & self.CLIENT_SSL)

    def ends_reply(self, reply: bytes) -> bool:
        """A commit is answered by a single packet, OK or error."""
        return _mysql_size(reply) is not None


def wire_of_client(opening: bytes) -> Wire | None:
    """The protocol of a connection on which the client spoke first; None while it has said too little to tell."""
    if len(opening) < _STARTUP_HEAD and _STARTUP_START.startswith(opening[:2]):
        return None
    is_postgres = _postgres_major(opening) in (PostgresWire.STARTUP_MAJOR, PostgresWire.REQUESTS_MAJOR)
    return PostgresWire() if is_postgres else OpaqueWire()


def wire_of_server(greeting: bytes) -> Wire | None:
    """The protocol of a connection on which the server spoke first, as MySQL's does; None while it is too early."""
    if len(greeting) < _GREETING_HEAD:
        return None
    return MysqlWire() if greeting[3:5] == b"\x00\x0a" else OpaqueWire()


def _is_commit(text: bytes) -> bool:
    return _COMMIT.search(text) is not None


def _postgres_major(startup: bytes) -> int:
    return int.from_bytes(startup[4:6], "big") if len(startup) >= _STARTUP_HEAD else 0


def _mysql_size(data: bytes) -> int | None:
    size = 4 + int.from_bytes(data[:3], "little")
    return size if len(data) >= max(size, 4) else None
