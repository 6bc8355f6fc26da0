"""What `rota node` and `rota up` share: being told to stop, waiting for the store, running loops; and `rota up`:
a whole rota in one process, for the jobs of one file or folder.

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
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from rota.cli.faults import INTERRUPTED
from rota.cli.lazy import Command, Seconds
from rota.cli.output import as_json, patiently, say
from rota.cli.session import Session, configuration, opened
from rota.core.masking import without_passwords
from rota.errors import CoordinatorLost, InvalidInput, StoreDenied, StoreUnavailable
from rota.logger import log

if TYPE_CHECKING:
    from rota.config import Config
    from rota.loops.node_process import NodeProcess
    from rota.model.work import Attempt

BACK_OFF_S = (0.1, 0.2, 0.5, 1.0, 2.0)
_SWITCH_S = 0.0005
"""The thread of an SQLite store lets go of the interpreter at every row, and waits this long to get it back."""

LINES_MAX = 50
NAMED_MAX = 5
"""How many runs are named when a node waits for their end."""

DONE = {"create": "job.created", "change": "job.changed", "adopt": "job.adopted", "nothing": "job.unchanged"}


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


@click.command(cls=Command)
@click.argument("path", metavar="FILE_OR_FOLDER")
@click.option("--seconds", type=Seconds(), help="Stop after so many seconds.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Write log lines like this instead of a view.")
@click.pass_context
def up(ctx: click.Context, path: str, seconds: float | None, log_format: str | None) -> None:
    """Apply the jobs of FILE_OR_FOLDER, fire and execute them here, until Ctrl-C. Changes of the files are picked up.

    Ctrl-C lets what runs finish; a second one stops it at once.

    A job may name functions of modules that lie beside its file.

    The store is made if it is not there; by default it is the file rota.db in this folder.
    """
    from rota.cli import log as lines_of_log

    refuse_missing_paths("path", [path])
    config = with_modules_beside(configuration(ctx), path)
    live = sys.stdout.isatty() and log_format is None and not as_json(ctx)
    lines: deque[str] | None = deque(maxlen=LINES_MAX) if live else None
    lines_of_log.start(log_format or ("json" if as_json(ctx) else "text"), sink=None if lines is None else lines.append)
    asyncio.run(run_up(config, path, seconds, lines))


def with_modules_beside(config: Config, path: str) -> Config:
    """Let jobs name functions of the modules that lie beside the file, or in the folder, that they are defined in. On a
    cluster a setting says which modules jobs may name; here whoever wrote the one wrote the other."""
    folder = Path(path).absolute() if Path(path).is_dir() else Path(path).absolute().parent
    beside = [it.stem for it in sorted(folder.glob("*.py")) if it.stem.isidentifier()]
    beside += [it.parent.name for it in sorted(folder.glob("*/__init__.py")) if it.parent.name.isidentifier()]
    executor = config.executor
    modules = ",".join(dict.fromkeys(it for it in (*executor.modules.split(","), *beside) if it))
    places = os.pathsep.join((executor.module_path or ".", str(folder)))
    return replace(config, executor=replace(executor, modules=modules, module_path=places))


async def run_up(config: Config, path: str, seconds: float | None, lines: deque[str] | None) -> None:
    """Run the loops of an embedded node until told to stop; with `lines`, the place of log lines, in a live view."""
    from rota.cli.watch import Watch
    from rota.wiring import conceal, node

    conceal()
    stopping = Stopping()
    stopping.listen()
    async with opened(config, actor=config.node.name) as session:
        await prepare(session)
        await _apply(session, path)
        host = await node(session.store, session.clock, config, [path])
        if seconds is not None:
            stopping.after(seconds)
        if lines is not None:
            watch = Watch(session, stopping, lambda: tally(host), path, lines)
            async with asyncio.TaskGroup() as group:
                group.create_task(watch.show())
                group.create_task(run_host(host, stopping, say=watch.tell))
            say(f"stopped; {tally(host)}; kept in {without_passwords(config.store.url)}")
            return
        log.info("node.started", node=config.node.name, store=without_passwords(config.store.url), path=path)
        await run_host(host, stopping)
        log.info("node.stopped", fired=host.fired, missed=host.missed, skipped=host.skipped)


async def _apply(session: Session, path: str) -> None:
    from rota.control.jobs import sources_of

    loaded = await patiently(
        session.clock, "loading definitions", session.control.jobs.load([path], session.config.definitions.repository)
    )
    if loaded.problems:
        raise InvalidInput(loaded.problems)
    for it in await session.control.jobs.apply(loaded.definitions, sources_of(loaded)):
        if it.action == "refuse":
            continue  # the node says so
        log.info(DONE[it.action], job=str(it.name))
