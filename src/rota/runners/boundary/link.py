"""The agent's end of its zygote: start it, hand it orders, and notice its death."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rota.runners.boundary import wire
from rota.runners.boundary.errors import BoundaryFailed, ZygoteGone
from rota.runners.boundary.promises import BoundaryKind
from rota.runners.boundary.switch import shared_deadline

_PROGRAM = Path(__file__).with_name("zygote.py")
_READY_S = 20.0
_END_S = 2.0


class ZygoteLink:
    """One zygote. When it is dead, it stays dead; a new one is another link."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.pid = process.pid
        self._process = process
        self._control = control
        self._pidfd = os.pidfd_open(process.pid)
        self._dead = asyncio.Event()
        self._sending = asyncio.Lock()
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_death)

    @classmethod
    async def start(cls, kind: BoundaryKind, switch: int) -> ZygoteLink:
        """Start a zygote and wait until it takes orders."""
        near, far = wire.pair()
        near.setblocking(False)
        with far, ExitStack() as unused:
            unused.enter_context(near)
            process = _spawn(kind, far.fileno(), switch)
            unused.pop_all()
        link = cls(process, near)
        try:
            async with asyncio.timeout(_READY_S):
                await _ready(near, asyncio.get_running_loop().add_reader)
            greeting, _ = wire.receive(near)
            _check_greeting(kind, greeting)
        except BaseException:
            await link.close()
            raise
        return link

    @property
    def is_dead(self) -> bool:
        return self._dead.is_set()

    async def order(self, descriptors: tuple[int, ...]) -> None:
        """Ask for a supervisor; the first descriptor is its link to the agent, where the answer comes."""
        async with self._sending:
            while True:
                try:
                    return wire.send(self._control, {"do": "fork"}, descriptors)
                except BlockingIOError:
                    await _ready(self._control, asyncio.get_running_loop().add_writer)
                except OSError as error:
                    raise ZygoteGone(f"the process that starts trees is gone: {error}") from error

    async def close(self) -> None:
        """End the zygote and see it gone: by itself, so that it reaps what it forked; by SIGKILL if it hangs."""
        self._control.close()
        try:
            async with asyncio.timeout(_END_S):
                await self._dead.wait()
        except TimeoutError:
            self._process.kill()
            await self._dead.wait()

    def _on_death(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._process.wait()
        self._control.close()
        self._dead.set()


def _spawn(kind: BoundaryKind, control: int, switch: int) -> subprocess.Popen[bytes]:
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("trees are started from the main thread: the zygote dies with the thread that started it")
    arguments = ["-I", "-S", "-X", "utf8", str(_PROGRAM), kind, str(control), str(switch), str(os.getpid())]
    return subprocess.Popen(  # noqa: S603 - our own program, and nothing of a user in its arguments
        [sys.executable, *arguments],
        env={},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(control, switch),
        start_new_session=True,
    )


async def _ready(link: socket.socket, add: Callable[..., None]) -> None:
    """Wait until the link can be read or written, as `add` watches for."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    add(link, ready.set)
    try:
        await ready.wait()
    finally:
        (loop.remove_reader if add == loop.add_reader else loop.remove_writer)(link)


def try_out(kind: BoundaryKind) -> None:
    """Raise `BoundaryFailed` if no zygote of that kind can work here. Blocks for a moment."""
    switch = shared_deadline()
    near, far = wire.pair()
    near.settimeout(_READY_S)
    with near:
        with far:
            process = _spawn(kind, far.fileno(), switch)
        os.close(switch)
        try:
            greeting, _ = wire.receive(near)
        except TimeoutError:
            greeting = None
    if not _ended_within(process, _END_S):
        process.kill()
    process.wait()
    _check_greeting(kind, greeting)


def _ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the process ends in that time. `Popen.wait` would poll, by sleeps that fail where a clock is faked."""
    pidfd = os.pidfd_open(process.pid)
    try:
        return bool(select.select([pidfd], [], [], seconds)[0])
    finally:
        os.close(pidfd)


def _check_greeting(kind: BoundaryKind, greeting: wire.Message | None) -> None:
    if greeting is None or greeting["is"] != "ready":
        why = greeting["why"] if greeting else "it ended before it was ready"
        raise BoundaryFailed(f"no {kind} boundary: the process that would make it says: {why}")
