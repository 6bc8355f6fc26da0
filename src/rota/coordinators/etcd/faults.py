"""What etcd's refusals mean, as errors of ours: by the codes of gRPC, which its gateway passes on."""

from __future__ import annotations

import msgspec

from rota.coordinators.etcd.wire import decode
from rota.errors import CoordinatorError, CoordinatorRefused, CoordinatorUnavailable, SessionLost
from rota.model.value import Value

INVALID_ARGUMENT, NOT_FOUND, DENIED, PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED, UNAUTHENTICATED = 3, 5, 7, 9, 11, 12, 16
_REFUSED = (INVALID_ARGUMENT, NOT_FOUND, DENIED, PRECONDITION, UNIMPLEMENTED, UNAUTHENTICATED)
_TOKEN_IS_OLD = ("invalid auth token", "revision of auth store is old")
_HTTP_BAD_REQUEST, _HTTP_NOT_FOUND = 400, 404


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
