"""The messages of etcd's gateway that we use, in its own words.

Bytes are base64 in JSON, and its long numbers are texts: msgspec does both. What has its default is left out, both
ways. A refusal becomes an error of ours, by the code of gRPC that the gateway passes on.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec

from rota.errors import CoordinatorError, CoordinatorRefused, CoordinatorUnavailable, SessionLost
from rota.model.value import Value

R = TypeVar("R")
INVALID_ARGUMENT, NOT_FOUND, DENIED, PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED, UNAUTHENTICATED = 3, 5, 7, 9, 11, 12, 16
_REFUSED = (INVALID_ARGUMENT, NOT_FOUND, DENIED, PRECONDITION, UNIMPLEMENTED, UNAUTHENTICATED)
_TOKEN_IS_OLD = ("invalid auth token", "revision of auth store is old")
_HTTP_BAD_REQUEST, _HTTP_NOT_FOUND = 400, 404
RANGE, PUT, TXN = "/v3/kv/range", "/v3/kv/put", "/v3/kv/txn"
STEPS_MAX = 100
"""A transaction may have 128 parts; those inside it count on top of it."""
BYTES_MAX = 1_000_000
"""A request may have 1.5 MiB."""


class Header(Value, frozen=True, kw_only=True):
    revision: int = 0


class KeyValue(Value, frozen=True, kw_only=True):
    key: bytes = b""
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    lease: int = 0


class Range(Value, frozen=True, kw_only=True):
    key: bytes
    range_end: bytes = b""
    limit: int = 0
    revision: int = 0
    keys_only: bool = False


class Ranged(Value, frozen=True, kw_only=True):
    header: Header = Header()
    kvs: tuple[KeyValue, ...] = ()
    more: bool = False


class Put(Value, frozen=True, kw_only=True):
    key: bytes
    value: bytes = b""
    lease: int = 0


class DeleteRange(Value, frozen=True, kw_only=True):
    key: bytes


class Deleted(Value, frozen=True, kw_only=True):
    deleted: int = 0


class Compare(Value, frozen=True, kw_only=True):
    """One condition on a key; a key that is not there has 0 everywhere."""

    key: bytes
    target: str
    result: str = "EQUAL"
    create_revision: int | None = None
    mod_revision: int | None = None
    lease: int | None = None


class Txn(Value, frozen=True, kw_only=True):
    compare: tuple[Compare, ...] = ()
    success: tuple[Op, ...] = ()
    failure: tuple[Op, ...] = ()


class Op(Value, frozen=True, kw_only=True):
    """One of these."""

    request_range: Range | None = None
    request_put: Put | None = None
    request_delete_range: DeleteRange | None = None
    request_txn: Txn | None = None


class Done(Value, frozen=True, kw_only=True):
    """What became of a transaction."""

    header: Header = Header()
    succeeded: bool = False
    responses: tuple[Result, ...] = ()


class Result(Value, frozen=True, kw_only=True):
    """One of these."""

    response_range: Ranged = Ranged()
    response_delete_range: Deleted = Deleted()
    response_txn: Done = Done()


class Lease(Value, frozen=True, kw_only=True):
    """A wish for a lease, or about one, and what is answered to it."""

    id: int = msgspec.field(name="ID", default=0)
    ttl: int = msgspec.field(name="TTL", default=0)


class Renewed(Value, frozen=True, kw_only=True):
    result: Lease


class Authenticate(Value, frozen=True, kw_only=True):
    name: str
    password: str


class Authenticated(Value, frozen=True, kw_only=True):
    token: str = ""


class Create(Value, frozen=True, kw_only=True):
    key: bytes
    range_end: bytes
    start_revision: int = 0
    fragment: bool = False
    """Cut long news into pieces: else they could be as long as many values."""


class WatchRequest(Value, frozen=True, kw_only=True):
    create_request: Create


class Changed(Value, frozen=True, kw_only=True):
    """A key without its value, which nobody needs who only wakes others."""

    key: bytes = b""
    mod_revision: int = 0


class EtcdEvent(Value, frozen=True, kw_only=True):
    kv: Changed = Changed()


class News(Value, frozen=True, kw_only=True):
    header: Header = Header()
    created: bool = False
    canceled: bool = False
    cancel_reason: str = ""
    fragment: bool = False
    events: tuple[EtcdEvent, ...] = ()


class WatchAnswer(Value, frozen=True, kw_only=True):
    result: News


_decoder: Any = cache(lambda kind: msgspec.json.Decoder(kind, strict=False))


def decode(data: bytes, kind: type[R]) -> R:
    """Read a message. Raises msgspec.DecodeError for what is none."""
    message: R = _decoder(kind).decode(data)
    return message


class Unsent(CoordinatorUnavailable):
    """No server has seen the request."""


class Compacted(CoordinatorError):
    """The revision that was asked for is forgotten."""


class TokenRefused(CoordinatorRefused):
    """Who we are must be proven anew; nothing was done."""


class AuthOff(CoordinatorRefused):
    """This server asks nobody who they are."""


class EtcdFault(Value, frozen=True, kw_only=True):
    """The forms that a refusal has: of a call in the open, of a stream inside `error`."""

    code: int = 0
    grpc_code: int = 0
    message: str = ""
    error: str | EtcdFault = ""


def fault_of(status: int, body: bytes) -> CoordinatorError:
    """The error that an answer other than 200 means."""
    try:
        fault = decode(body, EtcdFault)
    except msgspec.DecodeError:
        return _not_etcd(status, body.decode(errors="replace").strip()[:200])
    if isinstance(fault.error, EtcdFault):
        fault = fault.error
    return _error(fault.code or fault.grpc_code, fault.message)


def _not_etcd(status: int, text: str) -> CoordinatorError:
    """Words that are not of the gateway: of a server without one, of a port with TLS, of something in between."""
    if status == _HTTP_NOT_FOUND:
        return CoordinatorRefused("this etcd has no JSON gateway: use 3.4 or later with --enable-grpc-gateway=true")
    if status == _HTTP_BAD_REQUEST:
        return CoordinatorRefused(f"etcd does not understand: {text}")
    return CoordinatorUnavailable(f"etcd answers {status}: {text}")


def _error(code: int, message: str) -> CoordinatorError:
    if code == NOT_FOUND and "lease" in message:
        return SessionLost("the session of this node is over")
    if code == OUT_OF_RANGE:
        return Compacted(message)
    if any(it in message for it in _TOKEN_IS_OLD):
        return TokenRefused(message)
    if "authentication is not enabled" in message:
        return AuthOff(message)
    kind = CoordinatorRefused if code in _REFUSED else CoordinatorUnavailable
    return kind(f"etcd says: {message}")


def end_of(prefix: bytes) -> bytes:
    """The first key behind all that start so."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def exists(key: bytes) -> Compare:
    return Compare(key=key, target="CREATE", result="GREATER", create_revision=0)


def created_at(key: bytes, revision: int) -> Compare:
    """The condition that a key was made at this revision; at 0: that it is not there."""
    return Compare(key=key, target="CREATE", create_revision=revision)


def written_at(key: bytes, revision: int) -> Compare:
    return Compare(key=key, target="MOD", mod_revision=revision)


def leased_by(key: bytes, lease: int) -> Compare:
    """The condition that a key is a claim of this lease; of 0: that it lasts, or is not there."""
    return Compare(key=key, target="LEASE", lease=lease)


def putting(key: bytes, value: bytes, lease: int = 0) -> Op:
    return Op(request_put=Put(key=key, value=value, lease=lease))


def deleting(key: bytes) -> Op:
    return Op(request_delete_range=DeleteRange(key=key))


def claiming(key: bytes, value: bytes, lease: int) -> Op:
    """Take a key that is not there; else look who has it. The conditions of a nested transaction are its own."""
    look = Op(request_range=Range(key=key, keys_only=True))
    taking = Txn(compare=(created_at(key, 0),), success=(putting(key, value, lease),), failure=(look,))
    return Op(request_txn=taking)


def holding(key: bytes, fence: int, lease: int, deed: Op) -> Op:
    """Do something to a claim while it is this one."""
    return Op(request_txn=Txn(compare=(created_at(key, fence), leased_by(key, lease)), success=(deed,)))
