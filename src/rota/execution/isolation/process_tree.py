"""One process tree inside its boundary, as the agent sees it.

    ordered --forked--> recorded, go --> running --> ended        each step is a packet on the tree's own link
        `---------------------`-- refused: nothing of it ran

The end of the tree is the end of its supervisor, seen by its handle: the init of a PID namespace ends only when
all its processes have ended; other supervisors say so in their last packet, and if one was killed the agent clears up
itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress

from rota.errors import BoundaryFailed, CannotStart, DeadlinePassed, ZygoteGone
from rota.execution.isolation import cgroup, clearing, packets, processes
from rota.execution.isolation.clearing import Cleared
from rota.execution.isolation.promises import BoundaryKind
from rota.execution.isolation.records import Process, TreeRecord
from rota.execution.isolation.tree_order import TreeDescriptors, TreeOrder
from rota.model.value import Value

_KILL_PATIENCE_S = 1.0
_STOPS_MAX = 2


class TreeEnd(Value, frozen=True, kw_only=True):
    """How a tree ended, all of it.

    `code` or `signal` are those of its main process; neither is set if nobody saw its end. `leftovers` counts the
    processes that outlived the main process and were killed. `exceeded` names the bounds that the tree ran into:
    memory, cpu, processes. `supervisor_killed`: something else killed its supervisor. `supervisor_stopped`: its
    supervisor was stopped or traced, so the agent killed the tree. `late_s` is how long after the deadline the switch
    acted; it exceeds one tick of the switch only if the whole machine stood still.
    """

    code: int | None = None
    signal: int | None = None
    oom: bool = False
    leftovers: int = 0
    killed_by_switch: bool = False
    late_s: float = 0.0
    exceeded: tuple[str, ...] = ()
    supervisor_killed: bool = False
    supervisor_stopped: bool = False


class ProcessTree:
    """A started tree. `output` and `channel` belong to the caller, who closes them."""

    def __init__(
        self,
        *,
        label: str,
        name: str,
        kind: BoundaryKind,
        order: TreeOrder,
        ends: TreeDescriptors,
        on_gone: Callable[[ProcessTree], None],
    ) -> None:
        self.label = label
        self.name = name
        self.pid = -1
        self.surely_gone = True
        self.output = ends.output
        self.channel = ends.channel
        self._kind = kind
        self._order = order
        self._link = ends.link
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._handle = ends.handle
        self._supervisor: Process | None = None
        self._main: Process | None = None
        self._report: packets.Message | None = None
        self._killed = False
        self._stops_seen = 0
        self._supervisor_stopped = False
        self._force_later: asyncio.TimerHandle | None = None
        self._settling: asyncio.Task[None] | None = None
        self._forked: asyncio.Future[None] = self._loop.create_future()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[TreeEnd] = self._loop.create_future()
        self._loop.add_reader(self._link, self._receive)

    def signal(self, number: int) -> None:
        self._send({"do": "signal", "number": int(number)})

    def kill(self) -> None:
        """Send SIGKILL to every process of the tree; `ended` returns when they are gone."""
        if self._force_later is not None or self._ended.done():
            return
        is_heard = self._send({"do": "kill"})
        self._killed |= is_heard  # else its supervisor was killed from outside, which is seen in a moment
        self._force_later = self._loop.call_later(_KILL_PATIENCE_S if is_heard else 0, self._force)

    def check_supervisor(self) -> None:
        """Kill the tree if its supervisor is stopped at two checks in a row: it does not watch the deadline then."""
        if self._supervisor is None or self._ended.done():
            return
        seen = processes.find(self._supervisor.pid)
        self._stops_seen = self._stops_seen + 1 if seen is not None and seen.is_stopped else 0
        if self._stops_seen >= _STOPS_MAX:
            self._supervisor_stopped = True
            self._killed = True
            self._force()

    async def ended(self) -> TreeEnd:
        """Wait until every process of the tree is gone, and return how it ended."""
        return await asyncio.shield(self._ended)

    async def forked(self) -> None:
        """Wait until the supervisor is there; it waits for `go`."""
        await asyncio.shield(self._forked)

    def record(self) -> TreeRecord:
        """What a later agent needs to know of this tree."""
        assert self._supervisor is not None
        return TreeRecord(
            label=self.label,
            name=self.name,
            kind=self._kind,
            supervisor=self._supervisor,
            main=self._main,
            group=self._order.group,
        )

    async def go(self) -> None:
        """Let the program start; raises if it did not, when nothing of it is left."""
        self._send({"do": "go"})
        await asyncio.shield(self._started)

    def abandon(self) -> None:
        """Nobody will use this tree: kill it, should it still start, and close our ends."""
        self.kill()
        os.close(self.output)
        if self.channel:
            self.channel.close()

    def _send(self, message: packets.Message) -> bool:
        """Send a message to the supervisor; false if it is gone."""
        try:
            packets.send(self._link, message)
        except BlockingIOError:  # it is there, but does not read
            return True
        except OSError:
            return False
        return True

    def _receive(self) -> None:
        with suppress(BlockingIOError):
            while (heard := packets.receive(self._link))[0] is not None:
                self._on_message(heard[0], heard[1])
            self._loop.remove_reader(self._link)
            if self._supervisor is None:
                self._finish(lost=True)

    def _on_message(self, message: packets.Message, descriptors: list[int]) -> None:
        match message["is"]:
            case "forked":
                self._supervisor = self._handle.of_supervisor(message, descriptors)
                self._loop.add_reader(self._handle.near, self._on_supervisor_end)
                _resolve(self._forked)
            case "started":
                self.pid = message["pid"]
                self._main = Process(pid=self.pid, ticks=message["at"]) if "at" in message else None
                _resolve(self._started)
            case "ended" | "late" | "unforked":
                self._report = message

    def _on_supervisor_end(self) -> None:
        self._loop.remove_reader(self._handle.near)
        self._receive()
        self._loop.remove_reader(self._link)
        lost = self._report is None
        if lost and self._kind is not BoundaryKind.NAMESPACE:
            self._settling = self._loop.create_task(self._clear_up())
        else:
            self._finish(lost=lost)

    async def _clear_up(self) -> None:
        while (state := await asyncio.to_thread(clearing.clear, self.record(), just_lost=True)) is Cleared.ALIVE:
            continue  # it waits for some seconds itself
        self.surely_gone = state is Cleared.EMPTY
        self._finish(lost=True)

    def _finish(self, *, lost: bool) -> None:
        """No process of the tree is left: close everything, and report the end."""
        if self._force_later:
            self._force_later.cancel()
        end = self._end(lost=lost)
        for group in self._order.groups:
            if not cgroup.remove(group, patience_s=0):
                self._loop.run_in_executor(None, cgroup.remove, group)
        self._link.close()
        self._handle.close()
        _resolve(self._forked, self._refusal())
        _resolve(self._started, self._refusal())
        self._ended.set_result(end)
        self._on_gone(self)

    def _end(self, *, lost: bool) -> TreeEnd:
        report = self._report or {}
        ended_by = report.get("signal") or (signal.SIGKILL if self._killed and not report else None)
        exceeded = self._order.limits.exceeded(ended_by)
        return TreeEnd(
            code=report.get("code"),
            signal=ended_by,
            oom="memory" in exceeded,
            leftovers=report.get("leftovers", 0),
            killed_by_switch=report.get("switch", False),
            late_s=report.get("late_s", 0.0),
            exceeded=exceeded,
            supervisor_killed=lost and not self._killed,
            supervisor_stopped=self._supervisor_stopped,
        )

    def _refusal(self) -> Exception:
        report = self._report or {}
        if report.get("failed"):
            return CannotStart(f"{self.label}: {report['failed']}")
        if self._supervisor is None and not report:
            return ZygoteGone(f"{self.label} was not started: the process that starts trees is gone")
        if report.get("is") == "late" or report.get("switch"):
            return DeadlinePassed(f"{self.label} was not started: the deadline of this node has passed")
        why = report.get("why", "it was killed before it started" if self._killed else "its supervisor was killed")
        return BoundaryFailed(f"{self.label} was not started: {why}")

    def _force(self) -> None:
        """Kill harder: the supervisor did not do it in time. It is stopped, or waits for a process that the kernel
        holds."""
        if self._order.group:
            cgroup.kill(self._order.group)
        self._send({"do": "kill"})
        if self._supervisor is not None and not self._ended.done():
            # A guardian that is killed loses its orphans, so it is only woken, unless it is stopped again and again.
            is_lost = self._kind is BoundaryKind.NAMESPACE or self._stops_seen > _STOPS_MAX
            number = signal.SIGKILL if is_lost else signal.SIGCONT
            self._handle.signal(number)


def _resolve(future: asyncio.Future[None], refusal: Exception | None = None) -> None:
    if future.done():
        return
    if refusal is None:
        future.set_result(None)
    else:
        future.set_exception(refusal)
        future.exception()  # marked as seen: nobody may be waiting any more
