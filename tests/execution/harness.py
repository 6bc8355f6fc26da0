"""Drive a real runner: real processes inside real boundaries, and a listener that remembers what it is told."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import os
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from rota.clock import SystemClock
from rota.execution import attempts
from rota.execution.live_attempt import TIMEOUT, LiveAttempt
from rota.execution.log_directory import DirectoryLogs
from rota.execution.runner import ProcessRunner, RunnerSettings
from rota.model.job import JobName, handler_name
from rota.model.listener import LISTENERS, listener_name
from rota.model.run import LogKey
from rota.model.work import LOG_MAX, Attempt, AttemptEnd
from tests.factories import an_attempt

LEASE_S = 1000.0
PATIENCE_S = 60.0


def boottime_s() -> float:
    return SystemClock().boottime()


def fill(disk: Path) -> Path:
    """Write a file as large as can be."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        size = 65536
        while size:
            try:
                filler.write(b"x" * size)
            except OSError:
                size //= 2
    return disk / "filler"


class Heard:
    """A listener. Every attempt must be told of exactly once."""

    def __init__(self) -> None:
        self.starts: dict[tuple[int, int], float] = {}
        self.ends: dict[tuple[int, int], AttemptEnd] = {}
        self.warnings: list[tuple[int, int, str]] = []
        self._changed = asyncio.Event()

    def started(self, attempts: Sequence[tuple[int, int, float]]) -> None:
        for item_id, attempt, at_s in attempts:
            assert (item_id, attempt) not in self.starts
            assert (item_id, attempt) not in self.ends
            self.starts[item_id, attempt] = at_s
        self._changed.set()

    def ended(self, ends: Sequence[AttemptEnd]) -> None:
        for end in ends:
            assert (end.item_id, end.attempt) not in self.ends
            self.ends[end.item_id, end.attempt] = end
        self._changed.set()

    def warned(self, item_id: int, attempt: int, message: str) -> None:
        self.warnings.append((item_id, attempt, message))
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class Rig:
    """A runner at work, with the log it writes and the app that it runs."""

    def __init__(self, runner: ProcessRunner, heard: Heard, logs: DirectoryLogs, folder: Path) -> None:
        self.runner = runner
        self.heard = heard
        self.logs = logs
        self.folder = folder
        self._ids = itertools.count(1)

    def attempt(self, **fields: Any) -> Attempt:
        item_id = fields.pop("item_id", None) or next(self._ids)
        return an_attempt(item_id, **{"timeout_s": PATIENCE_S, **fields})

    def shell(self, *argv: str, **fields: Any) -> Attempt:
        return self.attempt(runner="shell", config={"argv": list(argv)}, **fields)

    def script(self, code: str, **fields: Any) -> Attempt:
        """A program: a piece of Python without any of our own code."""
        return self.shell(sys.executable, "-I", "-S", "-c", textwrap.dedent(code), **fields)

    def call(self, handler: str, tenant: str = "default", **fields: Any) -> Attempt:
        name = handler_name(JobName("default", "default", handler))
        return self.attempt(runner="python", config={"handler": name}, tenant=tenant, **{"name": name, **fields})

    def request(self, url: str, **fields: Any) -> Attempt:
        config = {"url": url, "method": "GET", **fields.pop("config", {})}
        return self.attempt(runner="http", config=config, **fields)

    def begin(self, *attempts: Attempt) -> None:
        self.runner.begin(attempts)

    async def end(self, attempt: Attempt) -> AttemptEnd:
        key = (attempt.item_id, attempt.attempt)
        await self.heard.until(lambda: key in self.heard.ends)
        return self.heard.ends[key]

    async def start(self, attempt: Attempt) -> float:
        key = (attempt.item_id, attempt.attempt)
        await self.heard.until(lambda: key in self.heard.starts or key in self.heard.ends)
        if key in self.heard.starts:
            return self.heard.starts[key]
        started_s = self.heard.ends[key].started_s  # one that ends soon is told of once
        assert started_s is not None, self.heard.ends[key]
        return started_s

    def live(self, attempt: Attempt) -> LiveAttempt:
        """What the runner knows of an attempt that is not over."""
        return self.runner._attempts._lives[attempt.item_id]

    async def fire_timer(self, attempt: Attempt, step: int = TIMEOUT) -> float:
        """Let one of its timers come now, once it has started; returns that instant. So a test needs no
        timeout that is long enough for what must be done before, and short enough to wait for."""
        await self.start(attempt)
        timers = self.runner._timers
        (entry,) = (it for it in timers._heap if it[2] is self.live(attempt) and it[3] == step)
        timers._heap.remove(entry)
        heapq.heapify(timers._heap)
        now = asyncio.get_running_loop().time()
        timers.at(now, *entry[2:])
        return now

    async def do(self, attempt: Attempt) -> AttemptEnd:
        self.begin(attempt)
        return await self.end(attempt)

    async def do_all(self, attempts: Sequence[Attempt]) -> list[AttemptEnd]:
        self.begin(*attempts)
        return [await self.end(attempt) for attempt in attempts]

    def log(self, attempt: Attempt) -> bytes:
        return self.logs.read(LogKey(attempt.run_id, attempt.item_id, attempt.attempt), 0, LOG_MAX * 2)

    async def appears(self, name: str) -> str:
        """Wait for a file that a task makes, and read it."""
        path = self.folder / name
        async with asyncio.timeout(PATIENCE_S):
            while not path.exists() or not path.read_text():
                await asyncio.sleep(0.01)
        return path.read_text()


@asynccontextmanager
async def rig(
    folder: Path, app: str = "", *, renewed: bool = True, log_max: int = LOG_MAX, **given: Any
) -> AsyncIterator[Rig]:
    """A runner with an app of that text; `HERE` in it is a folder in which tasks may leave traces."""
    file = folder / "app.py"
    apps = write_app(file, app, folder) if app else {}
    settings = {"node": "test", "state_dir": str(folder / "state"), "apps": apps, "idle_s": 30.0, **given}
    logs = DirectoryLogs(folder / "logs")
    runner = ProcessRunner(RunnerSettings(**settings), logs, log_max=log_max)
    heard = Heard()
    (folder / "state").mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempts, "LOG_WAIT_S", PATIENCE_S)  # an end that is told without its log would fail most tests
        await runner.open(heard)
        if renewed:
            runner.renew(boottime_s() + LEASE_S)
        try:
            yield Rig(runner, heard, logs, folder)
        finally:
            await runner.close()


class Memory:
    """How much this process grew at most while something was done, seen every few milliseconds. The peak that the
    system remembers would not do: an earlier test may have had a higher one."""

    def __init__(self) -> None:
        self.grown = 0

    async def __aenter__(self) -> Self:
        self._before = _resident()
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()
        await asyncio.wait([self._watching])
        self._look()

    async def _watch(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(0.005)

    def _look(self) -> None:
        self.grown = max(self.grown, _resident() - self._before)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def write_app(file: Path, app: str, folder: Path) -> dict[str, str]:
    """Write an app and say what can be called of it: every function that is decorated."""
    text = textwrap.dedent(app)
    imports = "import os, sys, time, asyncio, subprocess, signal\nimport rota\n\n"
    head = f"{imports}HERE = {str(folder)!r}\napp = rota.App()\n\n"
    file.write_text(head + text)
    words = [line.split("def ", 1)[1].partition("(")[0] for line in text.splitlines() if "def " in line]
    names = [handler_name(JobName("default", "default", word)) for word in words]
    listeners = [listener_name("default/default", it) for it in LISTENERS]
    return {name: str(file) for name in (*names, *listeners)}
