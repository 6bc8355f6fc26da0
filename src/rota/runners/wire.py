"""What an agent and a worker say to each other: frames of msgpack, each behind its length, many items in one frame.

The agent speaks in `Orders`, the worker in `Report`s. Numbers stand for what was told before: a task of this worker, an
item of this worker. The agent believes nothing: a frame that is too long or that cannot be read ends the worker.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rota.model.work import RESULT_MAX

REPORT_MAX = 1024 * 1024
"""The longest frame that an agent accepts."""
BATCH_BYTES = RESULT_MAX
"""When a worker has so much to tell, it does: one more result still fits."""
PIECE = 64 * 1024
"""How much output one entry of a report holds."""
_HEAD = 4

MAIN, LOOP, THREAD = 0, 1, 2
"""Where a function runs: in the main thread, which hears nothing meanwhile; in the event loop; in another thread."""


class SpoiledChannel(Exception):
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


class Task(msgspec.Struct, array_like=True, frozen=True):
    """What all items of one task share."""

    number: int
    name: str
    tenant: str
    task: str
    runner: str
    what: str
    """The advertised name of a function of the app, or `module:function`; nothing for http."""


class Order(msgspec.Struct, array_like=True, frozen=True):
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


class Orders(msgspec.Struct, array_like=True, frozen=True):
    """Agent to worker."""

    tasks: list[Task]
    orders: list[Order]
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


class Report(msgspec.Struct, array_like=True, frozen=True):
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
    """What the attempts ended in this report have left behind, if anything: processes, threads, a changed process."""
    files: list[tuple[str, tuple[int, int, int]]] = []
    """The files of the user's modules that were loaded since the last report, and how they looked."""
    stopping: list[int] = []
    """Attempts whose function was given the exception that asks it to end."""
    spent: bool = False
    """Whether something of an attempt that has ended is still seen while others run: no more orders, please."""


_encode = msgspec.msgpack.Encoder().encode


def framed(message: Setup | Orders | Report) -> bytes:
    """A message as it goes over the wire."""
    data = _encode(message)
    return len(data).to_bytes(_HEAD, "big") + data


class Inbox:
    """Puts frames together again from what arrives."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are whole now. Raises SpoiledChannel before more than the limit is kept."""
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
                raise SpoiledChannel(f"a frame of {size} bytes is longer than {self._limit}")
            end = at + _HEAD + size
            if len(rest) < end:
                break
            frames.append(bytes(rest[at + _HEAD : end]))
            at = end
        del rest[:at]
        return frames
