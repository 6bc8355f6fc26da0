"""The agent's end of its zygote: start it, hand it orders, and notice its death."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rota.runners import descriptors
from rota.runners.boundary import processes, wire
from rota.runners.boundary.errors import BoundaryFailed, ZygoteGone
from rota.runners.boundary.lifeline import Lifeline, lifeline
from rota.runners.boundary.promises import BoundaryKind
from rota.runners.boundary.switch import shared_deadline

_PROGRAM = Path(__file__).with_name("zygote.py")
_READY_S = 20.0
_END_S = 2.0
_STOPS_MAX = 2


class ZygoteLink:
    """One zygote. When it is dead, it stays dead; a new one is another link."""

    def __init__(self, process: subprocess.Popen[bytes], life: Lifeline, control: socket.socket) -> None:
        self.pid = process.pid
        self._process = process
        self._control = control
        self._life = life
        self._stops_seen = 0
        self._dead = asyncio.Event()
        self._sending = asyncio.Lock()
        asyncio.get_running_loop().add_reader(self._life.near, self._on_death)

    @classmethod
    async def start(cls, kind: BoundaryKind, switch: int) -> ZygoteLink:
        """Start a zygote and wait until it takes orders."""
        near, far = wire.pair()
        near.setblocking(False)
        with far, ExitStack() as unused:
            unused.enter_context(near)
            process, life = _spawn(kind, far.fileno(), switch)
            unused.pop_all()
        link = cls(process, life, near)
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

    async def dead(self) -> None:
        """Wait for its end."""
        await self._dead.wait()

    async def order(self, handed: tuple[int, ...]) -> None:
        """Ask for a supervisor; the first descriptor is its link to the agent, where the answer comes."""
        async with self._sending:
            while True:
                try:
                    return wire.send(self._control, {"do": "fork"}, handed)
                except BlockingIOError:
                    await _ready(self._control, asyncio.get_running_loop().add_writer)
                except OSError as error:
                    raise ZygoteGone(f"the process that starts trees is gone: {error}") from error

    def look(self) -> None:
        """A zygote that stands still at two looks in a row starts nothing: kill it, so that there is a new one."""
        seen = None if self.is_dead else processes.see(self.pid)
        self._stops_seen = self._stops_seen + 1 if seen is not None and seen.is_stopped else 0
        if self._stops_seen >= _STOPS_MAX:
            self._process.kill()

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
        asyncio.get_running_loop().remove_reader(self._life.near)
        self._life.close()
        self._process.wait()
        self._control.close()
        self._dead.set()


def _spawn(kind: BoundaryKind, control: int, switch: int) -> tuple[subprocess.Popen[bytes], Lifeline]:
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("trees are started from the main thread: the zygote dies with the thread that started it")
    life = lifeline()
    handed = (control, switch, *life.far)
    arguments = ["-I", "-S", "-X", "utf8", str(_PROGRAM), kind, *map(str, (*handed, os.getpid()))]
    try:
        process = subprocess.Popen(  # noqa: S603 - our own program, and nothing of a user in its arguments
            [sys.executable, *arguments],
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=handed,
            start_new_session=True,
        )
    except BaseException:
        life.close()
        raise
    finally:
        life.let_go()
    life.of_child(process.pid)
    descriptors.hand_on(process.pid)
    return process, life


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
            process, life = _spawn(kind, far.fileno(), switch)
        os.close(switch)
        try:
            greeting, _ = wire.receive(near)
        except TimeoutError:
            greeting = None
    if not life.has_ended(_END_S):  # `Popen.wait` would poll, by sleeps that fail where a clock is faked
        process.kill()
    process.wait()
    life.close()
    _check_greeting(kind, greeting)


def _check_greeting(kind: BoundaryKind, greeting: wire.Message | None) -> None:
    if greeting is None or greeting["is"] != "ready":
        why = greeting["why"] if greeting else "it ended before it was ready"
        raise BoundaryFailed(f"no {kind} boundary: the process that would make it says: {why}")
