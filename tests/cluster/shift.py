"""Nodes that execute, on one store, with their tasks watched: what the execution tests share."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rota.clock import SystemClock
from rota.control import Control
from rota.control.assigning import Assigned
from rota.execution.log_directory import DirectoryLogs
from rota.wiring import open_store
from tests.checkers.executing import START, Interval, Line, Verdict, intervals, judge
from tests.cluster.processes import NodeProcess
from tests.cluster.rig import through
from tests.cluster.watcher import Watcher
from tests.cluster.witness import Witness
from tests.servers.ports import LOOPBACK
from tests.servers.proxy import FaultProxy

WAIT_S = 60.0
LOOK_S = 0.02
SECOND_NS = 1_000_000_000
SURPRISES = ("loop.failed", "a round failed")
"""What a node says of them, and what one of release 0.1.0 said."""
_ATTEMPT = ("item_id", "attempt", "node", "assigned_at", "started_at", "ended_at", "outcome", "message", "log_bytes")


class Shift:
    """Nodes, the tasks that they run, and who sees both."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        control: Control,
        witness: Witness,
        watcher: Watcher,
        proxy: FaultProxy,
        settings: Mapping[str, str],
    ) -> None:
        self.url = url
        self.control = control
        self.witness = witness
        self.watcher = watcher
        self.proxy = proxy
        self.nodes: dict[str, NodeProcess] = {}
        self._all: list[NodeProcess] = []
        self._folder = folder
        self._settings = dict(settings)
        self._numbers = 0

    def node(
        self,
        name: str,
        *,
        settings: Mapping[str, str] | None = None,
        mutant: str | None = None,
        elsewhere: bool = False,
        by_proxy: bool = False,
        within: Sequence[str] = (),
        proxy: FaultProxy | None = None,
        python: Path = Path(sys.executable),
    ) -> NodeProcess:
        """A node that is not started yet."""
        made = NodeProcess(
            name,
            through(self.url, proxy or self.proxy) if by_proxy or proxy else self.url,
            self._folder,
            app=self.watcher.app,
            settings={**self._settings, **(settings or {})},
            mutant=mutant,
            elsewhere=elsewhere,
            within=within,
            python=python,
        )
        self.nodes[name] = made
        self._all.append(made)
        return made

    async def start(self, *names: str, **options: Any) -> list[NodeProcess]:
        """Start nodes, new ones if need be, and wait until each has joined and can run the tasks."""
        nodes = [self.nodes[name] if name in self.nodes else self.node(name, **options) for name in names]
        before = {node.name: node.log.count(" node.joined") for node in nodes}
        for node in nodes:
            node.start()
        await self.until(
            lambda: all(node.log.count(" node.joined") > before[node.name] for node in nodes), f"{names} to join"
        )
        return nodes

    async def assign(
        self,
        tenant: str,
        count: int = 1,
        *,
        handler: str | None = "nap",
        info: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Assigned:
        """Assign so many items that are alike."""
        first, self._numbers = self._numbers, self._numbers + count
        numbers = [f"n{number}" for number in range(first, first + count)]
        infos = [{"tenant": tenant, "quota": options.get("quota", "default"), **(info or {})}] * count
        return await self.control.assignments.assign(
            tenant, numbers, infos, handler=handler, app="default/default", **options
        )

    async def until(self, condition: Callable[[], bool], what: str, within_s: float = WAIT_S) -> None:
        """Wait for something that this process can see."""

        async def ask() -> bool:
            return condition()

        await self.until_asked(ask, what, within_s)

    async def until_asked(self, condition: Callable[[], Awaitable[bool]], what: str, within_s: float = WAIT_S) -> None:
        give_up = time.monotonic() + within_s
        while not await condition():
            if time.monotonic() > give_up:
                raise AssertionError(f"waited {within_s:g} s for {what}\n{self.evidence()}")
            await asyncio.sleep(LOOK_S)

    async def until_idle(self, within_s: float = WAIT_S) -> None:
        """Wait until nothing is live."""

        async def idle() -> bool:
            ((count,),) = await self.witness.ask("SELECT count(*) FROM rota_queue")
            await asyncio.sleep(0.05)  # so as not to be a burden on the store
            return bool(count == 0)

        await self.until_asked(idle, "the queue to be empty", within_s)

    def executed(self) -> list[Interval]:
        """What executed until now."""
        return intervals(self.watcher.lines, self.watcher.gone, time.monotonic_ns())

    def starts(self, item: int | str) -> list[Line]:
        """The starts of an item, in order."""
        return [line for line in self.watcher.lines if line.kind == START and line.item == int(item)]

    def judged(self, caps: Mapping[str, int] | None = None) -> Verdict:
        """Whether what executed until now was within the caps, and no item ran twice at a time."""
        return judge(self.watcher.lines, self.watcher.gone, time.monotonic_ns(), caps or {})

    async def items(self, run_id: int) -> dict[int, tuple[str, str | None, str | None]]:
        """State, result and message of the items of a run, as the store has them."""
        found = await self.witness.ask(f"SELECT id, state, result, message FROM rota_item WHERE run_id = {run_id}")
        return {row[0]: (row[1], row[2], row[3]) for row in found}

    async def attempts(self, *item_ids: int | str) -> list[dict[str, Any]]:
        """The attempts at items that are over, as the store has them."""
        names = (
            "item_id",
            "attempt",
            "node",
            "assigned_at",
            "started_at",
            "ended_at",
            "outcome",
            "message",
            "log_bytes",
        )
        wanted = ", ".join(map(str, item_ids))
        query = f"SELECT {', '.join(names)} FROM rota_attempt WHERE item_id IN ({wanted}) ORDER BY item_id, attempt"
        return [dict(zip(names, row, strict=True)) for row in await self.witness.ask(query)]

    async def clock_ns(self) -> int:
        """What must be added to the monotonic clock to get the store's, in nanoseconds: by the quickest of five
        answers, for one that comes late tells it wrong by half of that."""
        answers = []
        for _ in range(5):
            before = time.monotonic_ns()
            now = await self.witness.now() * 1000
            after = time.monotonic_ns()
            answers.append((after - before, now - (before + after) // 2))
        return min(answers)[1]

    def evidence(self) -> str:
        """The ends of the nodes' logs."""
        return "\n".join(f"--- {node.name}\n{node.log[-1500:]}" for node in self.nodes.values())

    def surprises(self) -> list[str]:
        """What nodes met that they had not foreseen."""
        found = []
        for node in self.nodes.values():
            found += [f"{node.name}: {line}" for line in node.log.splitlines() if any(it in line for it in SURPRISES)]
        return found

    def kill_all(self) -> None:
        for node in self._all:
            node.kill()


@asynccontextmanager
async def a_shift(
    url: str, folder: Path, *, settings: Mapping[str, str] | None = None, migrate: bool = True
) -> AsyncIterator[Shift]:
    """A migrated store with a quota for nobody yet, and no nodes. Without `migrate`, the store as it was found."""
    parts = urlsplit(url)
    async with AsyncExitStack() as stack:
        store = open_store(url, SystemClock(), actor="operator")
        stack.push_async_callback(store.close)
        if migrate:
            await store.migrate()
        watcher = stack.enter_context(Watcher())
        witness = await stack.enter_async_context(Witness(url))
        # A file has no host, and nobody reaches it by the proxy.
        proxy = await stack.enter_async_context(FaultProxy(parts.hostname or LOOPBACK, parts.port or 0))
        control = Control(store, SystemClock(), DirectoryLogs(folder / "logs"))
        shift = Shift(
            url, folder, control=control, witness=witness, watcher=watcher, proxy=proxy, settings=settings or {}
        )
        stack.callback(shift.kill_all)
        yield shift


async def quotas(control: Control, tenants: Sequence[str], cap: int | None = None) -> None:
    """Let tenants have items."""
    for tenant in tenants:
        await control.limits.set_quota(tenant, cap=cap)
