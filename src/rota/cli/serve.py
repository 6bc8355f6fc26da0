"""What `rota node` and `rota up` share: being told to stop, waiting for the store, running loops.

first signal ──> the node drains: it takes nothing more, finishes what it has, exit 0
second signal ─> what runs is killed and given back, exit 130
third signal ──> the process ends at once; the boundaries of its process trees end them, exit 130
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
import structlog

from rota.cli.faults import INTERRUPTED
from rota.errors import InvalidInput, StoreUnavailable

if TYPE_CHECKING:
    from rota.cli.session import Session
    from rota.loops.host import Host

BACK_OFF_S = (0.1, 0.2, 0.5, 1.0, 2.0)
_SWITCH_S = 0.0005
"""The thread of an SQLite store lets go of the interpreter at every row, and waits this long to get it back."""

log = structlog.get_logger()


class Stopping:
    """Whether this process was told to stop."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = False
        """Whether it was told so twice."""
        self._callbacks: list[Callable[[], None]] = []
        self.hurry: Callable[[], None] | None = None
        """How to end without finishing what runs."""
        self.at_once: Callable[[], None] = lambda: None
        """What must be tidied up even when the process ends at once."""

    def listen(self) -> None:
        """Stop at a signal."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)

    def after(self, seconds: float) -> None:
        """Stop after so long."""
        asyncio.get_running_loop().call_later(seconds, self.stop)

    def then(self, callback: Callable[[], None]) -> None:
        """Call this when told to stop; at once if that has happened."""
        self._callbacks.append(callback)
        if self.asked.is_set():
            callback()

    def stop(self) -> None:
        if not self.asked.is_set():
            self.asked.set()
            for callback in self._callbacks:
                callback()

    async def within(self, seconds: float) -> bool:
        """Wait for so long; says whether the process was told to stop meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.asked.wait()
        return self.asked.is_set()

    def _signalled(self) -> None:
        if not self.asked.is_set():
            self.stop()
        elif self.hurry is not None and not self.hurried:
            self.hurried = True
            self.hurry()
        else:
            self.at_once()
            sys.stderr.flush()
            os._exit(INTERRUPTED)


async def run_host(host: Host, stopping: Stopping) -> None:
    """Run a node until it has drained or was stopped; raises click.Abort if it was told twice."""
    gc.collect()
    gc.freeze()  # what was loaded so far stays: to look through it again and again would pause the node for 0.1 s
    sys.setswitchinterval(_SWITCH_S)
    stopping.hurry = host.stop_at_once
    stopping.then(host.stop)
    await host.run()
    if stopping.hurried:
        raise click.Abort


async def prepare(session: Session) -> None:
    """Bring the store to this release's schema; refuse one that would forget."""
    await session.store.migrate()
    await session.store.check()


async def wait_for_store(session: Session, stopping: Stopping) -> bool:
    """Prepare the store, waiting for it as long as it takes. Says whether it is there."""
    failures = 0
    while not stopping.asked.is_set():
        try:
            if await _unless_stopped(session, stopping):
                return True
        except StoreUnavailable as fault:
            rest_s = BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)] * (0.5 + session.clock.chance() / 2)
            failures += 1
            log.warning("waiting for the store", attempts=failures, reason=str(fault), again_in_s=round(rest_s, 2))
            await stopping.within(rest_s)
    return False


async def _unless_stopped(session: Session, stopping: Stopping) -> bool:
    work = asyncio.ensure_future(prepare(session))
    told = asyncio.ensure_future(stopping.asked.wait())
    try:
        await asyncio.wait({work, told}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            return False
        work.result()
        return True
    finally:
        for task in (work, told):
            task.cancel()
        await asyncio.gather(work, told, return_exceptions=True)


def refuse_missing_paths(field: str, paths: Sequence[str]) -> None:
    for path in paths:
        if not Path(path).exists():
            raise InvalidInput.of(field, f"there is no file or folder {path}")
