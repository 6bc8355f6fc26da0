"""Kazoo, with what it lacks: one client is one session, nothing waits for a later connection, and watches stay.

It runs on kazoo's threads and knows nothing of asyncio; `told` and `heard` are called there and must not block. It
leans on a few names that kazoo keeps to itself; the tests of this backend fail if they ever change.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, KazooException
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.protocol.connection import CLOSE_RESPONSE, PURESASL_AVAILABLE, ConnectionDropped, ConnectionHandler
from kazoo.protocol.serialization import Connect, Watch, int_struct, write_string
from kazoo.protocol.states import KeeperState
from kazoo.security import CREATOR_ALL_ACL

from rota.coordinators.zookeeper.address import ZooKeeperAddress
from rota.errors import CoordinatorRefused

_AGAIN = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.5}
"""How a lost connection is made again: for as long as it takes, and soon once the server is back."""
_REFUSALS = 3
"""So many times each host may hang up on us before we no longer insist on what we have seen."""
_RECURSIVE = 1
_AHEAD_MAX = 65536

_log = logging.getLogger("rota.zookeeper.kazoo")
_log.addHandler(logging.NullHandler())  # it warns at each attempt to connect; whoever wants that asks for it


@dataclass(frozen=True, slots=True)
class AddWatch:
    """Asks for news of a node and of all below it, for as long as the connection lives."""

    type: ClassVar[int] = 106
    path: str

    def serialize(self) -> bytes:
        return bytes(write_string(self.path) + int_struct.pack(_RECURSIVE))

    @classmethod
    def deserialize(cls, _data: bytes, _offset: int) -> bool:
        return True


class OperationResult(AsyncResult):  # type: ignore[misc]
    """Tells of itself on the thread that has read it, for `told` only hands over; kazoo would wake another for each."""

    def _do_callbacks(self) -> None:
        for callback in self._callbacks:
            callback(self)


def _pause(seconds: float) -> None:
    """Wait by no clock: a sleep until an instant fails where clocks are set from outside, and would end kazoo's thread
    and the session with it."""
    select.select([], [], [], max(seconds, 0.0))


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """How kazoo waits."""

    sleep_func = staticmethod(_pause)

    def __init__(self, connect_s: float, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._connect_s = connect_s
        self._tls = tls

    def async_result(self) -> OperationResult:
        return OperationResult(self)

    def create_connection(self, address: tuple[str, int], hostname: str, **_: object) -> socket.socket:
        """Give up a host that does not answer early enough to try another before the session is over. Kazoo would read
        the certificates each time, and leave a connection open that failed."""
        plain = socket.create_connection(address, self._connect_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._tls.wrap_socket(plain, server_hostname=hostname) if self._tls else plain

    def select(self, readers: Sequence[Any], writers: Sequence[Any], _: object, timeout: float) -> tuple[Any, Any, Any]:
        """Kazoo asks four times for each request, and would make and close a selector each time."""
        poll = select.poll()
        for it in readers:
            poll.register(it, select.POLLIN)
        for it in writers:
            poll.register(it, select.POLLOUT)
        ready = {descriptor for descriptor, _ in poll.poll(timeout * 1000)}
        return [it for it in readers if it.fileno() in ready], [it for it in writers if it.fileno() in ready], []


class ZooKeeperConnection(ConnectionHandler):  # type: ignore[misc]
    """Tells its client how long the session lives, and of every change that is watched. It takes in whatever has come:
    when a session ends, news come in thousands, and kazoo would ask six times for each of them."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._ahead = bytearray()
        self._refusals = 0

    def _connect(self, *args: Any) -> Any:
        self._ahead.clear()
        return super()._connect(*args)

    def _read(self, length: int, timeout: float) -> bytes:
        with self._socket_error_handling():
            while len(self._ahead) < length:
                if not self._decrypted() and not self.handler.select([self._socket], [], [], timeout)[0]:
                    raise self.handler.timeout_exception("socket time-out during read")
                with suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    chunk = self._socket.recv(_AHEAD_MAX)
                    if not chunk:
                        raise ConnectionDropped("socket connection broken")
                    self._ahead += chunk
        taken = bytes(self._ahead[:length])
        del self._ahead[:length]
        return taken

    def _read_socket(self, read_timeout: float) -> Any:
        answer = super()._read_socket(read_timeout)
        while answer is not CLOSE_RESPONSE and (self._decrypted() or self._is_whole()):
            answer = super()._read_socket(read_timeout)
        return answer

    def _decrypted(self) -> bool:
        """Whether TLS has more that no look at the socket would show."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _is_whole(self) -> bool:
        """Whether a whole message has come."""
        size: int = int_struct.size
        come = len(self._ahead)
        return come >= size and come - size >= int(int_struct.unpack_from(self._ahead)[0])

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, Connect):
            return super()._invoke(timeout, request, xid)
        try:
            answer = super()._invoke(timeout, request, xid)
        except ConnectionDropped:
            self._was_refused()
            raise
        self._refusals = 0
        self.client.ttl_s = answer[0].time_out / 1000
        return answer

    def _was_refused(self) -> None:
        """A server hangs up on clients that have seen more than it has. One that lags behind catches up, or another
        host answers; but servers that lost their data would refuse us for ever. So we forget what we have seen, and
        the server says whether the session still lives. Reads stay fresh all the same: each begins with a sync."""
        self._refusals += 1
        if self._refusals >= _REFUSALS * len(self.client.hosts):
            self.client.last_zxid = 0

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        self.client.heard(Watch.deserialize(buffer, offset)[0].path)


class ZooKeeperClient(KazooClient):  # type: ignore[misc]
    """One session. When it is over, so is the client."""

    def __init__(
        self, address: ZooKeeperAddress, ttl_s: float, told: Callable[[Any, int], None], heard: Callable[[str], None]
    ) -> None:
        handler = Handler(ttl_s / (1 + len(address.hosts)), address.tls)
        super().__init__(
            timeout=ttl_s,
            handler=handler,
            connection_retry={**_AGAIN, "sleep_func": _pause},
            logger=_log,
            **_settings(address),
        )
        self._connection = ZooKeeperConnection(
            self, self._conn_retry.copy(), logger=self.logger, sasl_options=_sasl_options(address)
        )
        self._told = told
        self.heard = heard
        self.ttl_s = ttl_s
        """What the server has agreed to."""

    def watch_async(self, path: str) -> Any:
        """Have `heard` called with the path of each node at or below this one that changes."""
        result = self.handler.async_result()
        self._call(AddWatch(path), result)
        return result

    def end(self) -> None:
        """Close the session if that can still be told to the server, and let go of everything. Blocks for a while."""
        with suppress(KazooException, OSError):  # a connection that does not end is left to end by itself
            self.stop()
            self._safe_close()
            self.close()

    def _call(self, request: Any, result: Any) -> bool | None:
        """Fail what cannot be sent now: kazoo would send it whenever there is a connection again, and nobody would
        remember by then why it was asked."""
        if not self.connected:
            result.set_exception(ConnectionLoss())
            return False
        answer: bool | None = super()._call(request, result)
        return answer

    def _session_callback(self, state: Any) -> None:
        """Tell of every state: of a loss before those who wait for answers learn it, of a connection when it is ready.
        And stop after an expiry, where kazoo would begin another session by itself."""
        if state == KeeperState.EXPIRED_SESSION:
            self._stopped.set()
        if state != KeeperState.CONNECTED:
            self._told(state, 0)
        super()._session_callback(state)
        if state == KeeperState.CONNECTED:
            self._told(state, self._session_id)


def _settings(address: ZooKeeperAddress) -> dict[str, Any]:
    """What kazoo shall know. Who gives a name and a password owns the nodes it makes: others cannot touch them."""
    settings: dict[str, Any] = {"hosts": ",".join(address.hosts)}
    if address.user:
        settings["default_acl"] = CREATOR_ALL_ACL
        if not address.sasl:
            settings["auth_data"] = {("digest", f"{address.user}:{address.password}")}
    return settings


def _sasl_options(address: ZooKeeperAddress) -> dict[str, str] | None:
    if not address.sasl:
        return None
    if not PURESASL_AVAILABLE:
        raise CoordinatorRefused("sasl=digest needs another package: pip install pure-sasl")
    return {"mechanism": "DIGEST-MD5", "username": address.user, "password": address.password}
