"""The app of the execution tests. Its tasks are the witnesses: each writes a line when it starts and one when it ends.

The rig copies this file to a folder of its own (`rota node start --app FOLDER/tasks.py`), where the lines go too. A
process that runs a task holds a connection to the rig for as long as it lives: from it the rig knows the process's
number as the host knows it, and when it is gone.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import rota
from rota.client.context import Stopped, Told, current

HERE = Path(__file__).parent
LINES, TOLD, SOCKET = HERE / "lines", HERE / "told", HERE / "rig"

app = rota.App()


class _Me:
    """This process, as the rig knows it."""

    link: socket.socket | None = None
    pid = 0
    lock = threading.Lock()


def _pid() -> int:
    with _Me.lock:  # items that share a process run in threads
        if _Me.link is None:
            _Me.link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            _Me.link.connect(str(SOCKET))
            _Me.pid = int(_Me.link.recv(32))
        return _Me.pid


def _append(path: Path, line: dict[str, Any]) -> None:
    """One write, so that lines of several processes never mix."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)


def _write(kind: str) -> None:
    here = current()
    info = here.info if isinstance(here.info, dict) else {}
    line = {
        "mono_ns": time.monotonic_ns(),  # before the first `_pid`, which may have to wait for the rig
        "run": here.run_id,
        "item": here.item_id,
        "attempt": here.attempt,
        "token": here.token,
        "pid": _pid(),
        "tenant": info.get("tenant", "default"),
        "quota": info.get("quota", "default"),
        "kind": kind,
    }
    _append(LINES, line)


@contextmanager
def _witnessed() -> Iterator[None]:
    """Write when a function starts, and when it ends, also if it is stopped; a process that is killed writes no end."""
    _write("start")
    try:
        yield
    finally:
        _write("end")


def _ms(info: Any) -> int:
    """How long to take: `ms`, in later attempts `again_ms` if there is one."""
    told = info or {}
    first = told.get("ms", 20)
    return int(first if current().attempt == 1 else told.get("again_ms", first))


def _wait_at_gate(info: Any) -> None:
    gate = (info or {}).get("gate")
    while gate and not (HERE / gate).exists():
        time.sleep(0.02)


@app.task(timeout=60)
def nap(info: Any = None) -> str:
    """Take as long as told, and until the rig has opened the `gate` if one is named; then succeed."""
    with _witnessed():
        time.sleep(_ms(info) / 1000)
        _wait_at_gate(info)
    return f"slept in attempt {current().attempt}"


@app.task(timeout=60)
def doze() -> None:
    """Take long enough to be met by what happens to its node."""
    with _witnessed():
        time.sleep(1.5)


@app.task(timeout=60)
def mark() -> None:
    """Only leave lines."""
    with _witnessed():
        pass


@app.task(timeout=60)
def fail(info: Any) -> str:
    """Take as long as told; fail in as many attempts as told, then succeed."""
    with _witnessed():
        time.sleep(info.get("ms", 0) / 1000)
        if current().attempt <= info["failures"]:
            raise ValueError(f"attempt {current().attempt} fails as it was told to")
    return "at last"


@app.task(timeout=60)
def deaf(info: Any = None) -> None:
    """Ignore what asks it to end, and take as long as told."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with _witnessed():
        until = time.monotonic() + _ms(info) / 1000
        while time.monotonic() < until:
            with suppress(Stopped):
                time.sleep(max(0.0, until - time.monotonic()))


@app.task(timeout=60)
def talk(info: Any = None) -> None:
    """Print numbered lines for as long as told."""
    until = time.monotonic() + _ms(info) / 1000
    number = 0
    with _witnessed():
        while time.monotonic() < until:
            print(f"line {number}", file=sys.stdout, flush=True)
            number += 1
            time.sleep(0.01)


@app.on_start
def started(told: Told) -> None:
    """Somebody else does the work: write down what they need to report its end."""
    _append(TOLD, {"kind": "start", "id": told.id, "token": told.token, "number": told.number})


@app.on_fail
def failed(told: Told) -> None:
    _append(TOLD, {"kind": "fail", "id": told.id, "token": told.token, "number": told.number})


@app.on_timeout
def timed_out(told: Told) -> None:
    _append(TOLD, {"kind": "timeout", "id": told.id, "token": told.token, "number": told.number})
