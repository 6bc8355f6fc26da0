"""The protocol between an agent and a worker: frames of msgpack, each behind its length, many items in one frame.

The agent sends `Orders`, the worker `WorkerReport`s. Numbers stand for tasks and items that were named before. The
agent trusts nothing: a frame that is too long or cannot be read ends the worker.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rota.model.moment import micros
from rota.model.work import RESULT_MAX, Attempt

REPORT_MAX = 1024 * 1024
"""The longest frame that an agent accepts."""
BATCH_BYTES = RESULT_MAX
"""A worker sends its report when it is so large: one more result still fits."""
PIECE = 64 * 1024
"""How much output one entry of a report holds."""
_HEAD = 4
MAIN, LOOP, THREAD = 0, 1, 2
"""Where a function runs: in the main thread, which serves no channel meanwhile; in the event loop; in another
thread."""


class TaskFault(Exception):
    """A failure that rota itself finds, with the name under which a retry policy knows it. Its message explains it, so
    no traceback is kept."""

    def __init__(self, cause: str, message: str, code: int | None = None) -> None:
        self.cause = cause
        self.code = code
        super().__init__(message)


class ProtocolViolation(Exception):
    """The other side does not keep to the protocol."""


class Setup(msgspec.Struct, array_like=True, frozen=True):
    """The first frame to a worker: what it may run."""

    app: str | None
    """The file that holds the app."""
    modules: tuple[str, ...]
    """From which modules, and modules inside them, functions may be imported."""
    paths: tuple[str, ...]
    """Where modules are looked for, before the usual places."""
    hosts: tuple[str, ...]
    """Which hosts may be called although their addresses are not public."""
    concurrency: int
    """How many items at a time; with 1, they run in the main thread."""
    shared: bool
    """Whether several items may be there at a time."""
    log_max: int
    folder: str = ""
    """A working folder that is to be empty for each item."""


class WorkerTask(msgspec.Struct, array_like=True, frozen=True):
    """What all items of one task share."""

    number: int
    name: str
    tenant: str
    task: str
    runner: str
    what: str
    """The advertised name of a function of the app, or `module:function`; nothing for http."""


class AttemptOrder(msgspec.Struct, array_like=True, frozen=True):
    """One attempt to be made."""

    number: int
    task: int
    item_id: int
    attempt: int
    token: int
    run_id: int
    index: int
    key: str
    params: dict[str, Any] | None
    item_number: str | None
    info: str | None
    slot_us: int | None
    config: dict[str, Any] | None


def order_of(attempt: Attempt, number: int, task: int, config: dict[str, Any] | None = None) -> AttemptOrder:
    return AttemptOrder(
        number,
        task,
        attempt.item_id,
        attempt.attempt,
        attempt.token,
        attempt.run_id,
        attempt.index,
        attempt.idempotency_key,
        attempt.params or None,
        attempt.number,
        attempt.info,
        None if attempt.slot_at is None else micros(attempt.slot_at),
        config,
    )


class Orders(msgspec.Struct, array_like=True, frozen=True):
    """Agent to worker."""

    tasks: list[WorkerTask]
    orders: list[AttemptOrder]
    cancel: list[int]


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """An attempt that did not succeed. `code` is an exit code, if there is one."""

    number: int
    started_s: float | None
    ended_s: float
    cause: str
    message: str
    code: int | None
    traceback: str = ""


class WorkerReport(msgspec.Struct, array_like=True, frozen=True):
    """Worker to agent, in the order in which it is to be read."""

    ready: bool = False
    broken: Failure | None = None
    """Why the worker cannot work at all."""
    started: list[tuple[int, float, int]] = []
    output: list[tuple[int, bytes]] = []
    done: list[tuple[int, float, float, str | None]] = []
    """Attempts that succeeded: number, start, end, result."""
    failed: list[Failure] = []
    left: str = ""
    """What the attempts that end in this report have left behind, if anything: processes, threads, changed state."""
    files: list[tuple[str, tuple[int, int, int]]] = []
    """The files of the user's modules that were loaded since the last report, with their versions."""
    stopping: list[int] = []
    """Attempts in whose function the exception was raised that asks it to end."""
    spent: bool = False
    """True if something of an attempt that has ended is still there while others run: send no more orders."""


_encode = msgspec.msgpack.Encoder().encode


def framed(message: Setup | Orders | WorkerReport) -> bytes:
    """A message as it goes over the wire."""
    data = _encode(message)
    return len(data).to_bytes(_HEAD, "big") + data


class FrameReader:
    """Splits what arrives into frames."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are whole now. Raises ProtocolViolation before more than the limit is kept."""
        rest = self._rest
        size = len(data) - _HEAD
        if not rest and size > 0 and size == int.from_bytes(data[:_HEAD], "big") and size <= (self._limit or size):
            return [data[_HEAD:]]  # mostly, one read brings one frame
        rest += data
        frames: list[bytes] = []
        at = 0
        while len(rest) - at >= _HEAD:
            size = int.from_bytes(rest[at : at + _HEAD], "big")
            if self._limit is not None and size > self._limit:
                raise ProtocolViolation(f"a frame of {size} bytes is longer than {self._limit}")
            end = at + _HEAD + size
            if len(rest) < end:
                break
            frames.append(bytes(rest[at + _HEAD : end]))
            at = end
        del rest[:at]
        return frames
