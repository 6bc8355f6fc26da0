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
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
import structlog

from rota.cli.faults import INTERRUPTED
from rota.errors import CoordinatorLost, InvalidInput, StoreDenied, StoreUnavailable

if TYPE_CHECKING:
    from rota.cli.session import Session
    from rota.loops.node_process import NodeProcess
    from rota.model.work import Attempt

BACK_OFF_S = (0.1, 0.2, 0.5, 1.0, 2.0)
_SWITCH_S = 0.0005
"""The thread of an SQLite store lets go of the interpreter at every row, and waits this long to get it back."""

NAMED_MAX = 5
"""How many runs are named when a node waits for their end."""

log = structlog.get_logger()


class Stopping:
    """Knows whether this process was told to stop, by a signal or after a time."""

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
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)

    def after(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self.stop)

    def then(self, callback: Callable[[], None]) -> None:
        """Call `callback` when told to stop; at once if that has happened already."""
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


def tally(host: NodeProcess) -> str:
    """Describe what a scheduler has done: `12 ran, 127 missed`."""
    words = [f"{host.fired} ran"]
    words += [f"{host.missed} missed"] if host.missed else []
    words += [f"{host.skipped} skipped"] if host.skipped else []
    return ", ".join(words)


def waiting_for(in_hand: Collection[Attempt]) -> str:
    runs = sorted({(it.run_id, it.spec.name) for it in in_hand})
    shown = ", ".join(f"run {run_id} ({name})" if name else f"run {run_id}" for run_id, name in runs[:NAMED_MAX])
    more = f" and {len(runs) - NAMED_MAX} more" if len(runs) > NAMED_MAX else ""
    return f"stopping: waits for {shown}{more} to end; once more ends {'them' if len(in_hand) > 1 else 'it'} at once"


def stop_by_signal(host: NodeProcess, stopping: Stopping, *, say: Callable[[str], None] | None = None) -> None:
    """Let a signal stop a node. Whoever sends it is told what the node still waits for, by `say` if there is somebody
    who looks on, else in the log: at once, and again if a round was just giving it more."""
    told: set[int] = set()

    def tell() -> None:
        in_hand = host.in_hand
        items = {it.item_id for it in in_hand}
        if items <= told:
            return
        told.update(items)
        if say is not None:
            say(waiting_for(in_hand))
        else:
            log.info("node.draining", items=len(in_hand), note=waiting_for(in_hand))

    loop = asyncio.get_running_loop()
    stopping.hurry = host.stop_at_once
    # Whoever reads that may be gone, and then it fails: neither stopping nor draining may fail with it.
    host.signals.all_in_hand.on(lambda: loop.call_soon(tell))
    stopping.then(host.stop)
    stopping.then(tell)


async def run_host(host: NodeProcess, stopping: Stopping, *, say: Callable[[str], None] | None = None) -> None:
    """Run a node until it has drained or was stopped; raises click.Abort if it was told twice."""
    gc.collect()
    gc.freeze()  # the modules stay; a collection that walks them pauses the node for 0.1 s
    sys.setswitchinterval(_SWITCH_S)
    stop_by_signal(host, stopping, say=say)
    await host.run()
    if host.coordinator_lost:
        raise CoordinatorLost("the coordinator was lost, and coordinator.on_lost says exit")
    if stopping.hurried:
        raise click.Abort


async def prepare(session: Session) -> None:
    """Bring the store to this release's schema; refuse one that would forget."""
    await session.store.migrate()
    await session.store.check()


async def wait_for_store(session: Session, stopping: Stopping) -> bool:
    """Prepare the store, waiting for it as long as it takes. Says whether it is there; raises StoreDenied if it lets
    nobody in."""
    failures = 0
    while not stopping.asked.is_set():
        try:
            if await _unless_stopped(session, stopping):
                return True
        except StoreDenied:
            raise  # the store is up and refuses us: waiting does not help
        except StoreUnavailable as fault:
            rest_s = BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)] * (0.5 + session.clock.chance() / 2)
            failures += 1
            if not failures & (failures - 1):  # the first, and then after ever more of them
                log.warning("store.awaited", attempts=failures, reason=str(fault), again_in_s=round(rest_s, 2))
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
