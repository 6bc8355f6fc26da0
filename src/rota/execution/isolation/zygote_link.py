"""The agent's link to its zygote: starts it, sends it orders, and notices its death."""

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

from rota.errors import BoundaryFailed, ZygoteGone
from rota.execution import descriptors
from rota.execution.isolation import packets, processes
from rota.execution.isolation.dead_mans_switch import shared_deadline
from rota.execution.isolation.process_handle import ProcessHandle, process_handle
from rota.execution.isolation.promises import BoundaryKind

_PROGRAM = Path(__file__).with_name("zygote.py")
_READY_S = 20.0
_END_S = 2.0
_STOPS_MAX = 2


class ZygoteLink:
    """One zygote. When it is dead, it stays dead; a new one is another link."""

    def __init__(self, process: subprocess.Popen[bytes], handle: ProcessHandle, control: socket.socket) -> None:
        self.pid = process.pid
        self._process = process
        self._control = control
        self._handle = handle
        self._stops_seen = 0
        self._dead = asyncio.Event()
        self._sending = asyncio.Lock()
        asyncio.get_running_loop().add_reader(self._handle.near, self._on_death)

    @classmethod
    async def start(cls, kind: BoundaryKind, switch: int) -> ZygoteLink:
        near, far = packets.pair()
        near.setblocking(False)
        with far, ExitStack() as unused:
            unused.enter_context(near)
            process, handle = _spawn(kind, far.fileno(), switch)
            unused.pop_all()
        link = cls(process, handle, near)
        try:
            async with asyncio.timeout(_READY_S):
                await _ready(near, asyncio.get_running_loop().add_reader)
            greeting, _ = packets.receive(near)
            _check_greeting(kind, greeting)
        except BaseException:
            await link.close()
            raise
        return link

    @property
    def is_dead(self) -> bool:
        return self._dead.is_set()

    async def dead(self) -> None:
        await self._dead.wait()

    async def order(self, handed: tuple[int, ...]) -> None:
        """Ask for a supervisor; the first descriptor is its link to the agent, where the answer comes."""
        async with self._sending:
            while True:
                try:
                    return packets.send(self._control, {"do": "fork"}, handed)
                except BlockingIOError:
                    await _ready(self._control, asyncio.get_running_loop().add_writer)
                except OSError as error:
                    raise ZygoteGone(f"the process that starts trees is gone: {error}") from error

    def check_stopped(self) -> None:
        """Kill a zygote that is stopped at two checks in a row: a new one will start trees again."""
        seen = None if self.is_dead else processes.find(self.pid)
        self._stops_seen = self._stops_seen + 1 if seen is not None and seen.is_stopped else 0
        if self._stops_seen >= _STOPS_MAX:
            self._process.kill()

    async def close(self) -> None:
        """End the zygote and wait until it is gone. It gets time to reap what it forked, then SIGKILL."""
        self._control.close()
        try:
            async with asyncio.timeout(_END_S):
                await self._dead.wait()
        except TimeoutError:
            self._process.kill()
            await self._dead.wait()

    def _on_death(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle.near)
        self._handle.close()
        self._process.wait()
        self._control.close()
        self._dead.set()


def _spawn(kind: BoundaryKind, control: int, switch: int) -> tuple[subprocess.Popen[bytes], ProcessHandle]:
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("trees are started from the main thread: the zygote dies with the thread that started it")
    handle = process_handle()
    handed = (control, switch, *handle.far)
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
        handle.close()
        raise
    finally:
        handle.close_far()
    handle.of_child(process.pid)
    descriptors.hand_on(process.pid)
    return process, handle


async def _ready(link: socket.socket, add: Callable[..., None]) -> None:
    """Wait until the link can be read or written, as `add` watches for."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    add(link, ready.set)
    try:
        await ready.wait()
    finally:
        (loop.remove_reader if add == loop.add_reader else loop.remove_writer)(link)


def check_zygote(kind: BoundaryKind) -> None:
    """Raise `BoundaryFailed` if no zygote of that kind can work here. Blocks for a moment."""
    switch = shared_deadline()
    near, far = packets.pair()
    near.settimeout(_READY_S)
    with near:
        with far:
            process, handle = _spawn(kind, far.fileno(), switch)
        os.close(switch)
        try:
            greeting, _ = packets.receive(near)
        except TimeoutError:
            greeting = None
    if not handle.has_ended(_END_S):  # `Popen.wait` would poll, by sleeps that fail where a clock is faked
        process.kill()
    process.wait()
    handle.close()
    _check_greeting(kind, greeting)


def _check_greeting(kind: BoundaryKind, greeting: packets.Message | None) -> None:
    if greeting is None or greeting["is"] != "ready":
        why = greeting["why"] if greeting else "it ended before it was ready"
        raise BoundaryFailed(f"no {kind} boundary: the process that would make it says: {why}")
