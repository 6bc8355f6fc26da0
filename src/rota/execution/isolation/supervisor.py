"""One supervisor watches one tree: it starts the program, kills the tree at its deadline, and waits until it is empty.

    waiting --go--> starting --exec worked--> running --main ended, kill, switch, agent gone--> clearing --> end
       |               `--it did not: failed----------------------------------------------------^
       `--agent gone, kill, deadline passed: end, and nothing was started

It never waits for the agent. It reports the end only when no process of the tree is left.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from contextlib import suppress
from typing import Any

from rota import system
from rota.execution.isolation import cgroup, packets, program_start
from rota.execution.isolation.boundaries import GroupBoundary
from rota.execution.isolation.dead_mans_switch import TICK_S, DeadMansSwitch
from rota.execution.isolation.waiting import is_readable, wall_s

_TEXT_MAX = 4096


class Supervisor:
    """The supervisor of one tree. `run` returns when the tree is gone."""

    def __init__(
        self,
        order: dict[str, Any],
        link: socket.socket,
        output: int,
        channel: int | None,
        switch: DeadMansSwitch,
        boundary: GroupBoundary,
    ) -> None:
        self._order = order
        self._link = link
        self._output = output
        self._channel = channel
        self._switch = switch
        self._boundary = boundary
        self._hold_ns: int = order["hold_ns"]
        self._main = 0
        self._forked_at = 0
        self._status: int | None = None
        self._report = -1
        self._words = b""
        self._started = False
        self._by_switch = False
        self._late_s = 0.0
        self._over = False
        self._alone = False

    def run(self) -> None:
        self._link.setblocking(False)
        self._boundary.prepare()
        if not self._may_start():
            return
        self._start()
        self._watch()
        outlived = self._status is not None
        if not outlived:
            self._kill_main()
        cleared = self._boundary.clear(self._main, self._reap)
        self._see_main_end()
        self._forget()
        self._report_end(cleared if outlived else 0)

    def _may_start(self) -> bool:
        """Wait for `go`, which the agent sends when it has written the record of this tree; false: nothing may
        start."""
        while not is_readable(self._link, TICK_S):
            if self._switch.left_s() <= 0:
                break
        else:
            message, _ = packets.receive(self._link)
            if message is None or message["do"] != "go":
                return False
        if self._switch.left_s() <= 0:
            packets.try_send(self._link, {"is": "late"})
            return False
        return True

    def _start(self) -> None:
        self._report, far_end = os.pipe()
        self._forked_at = wall_s()
        self._main = os.fork()
        if self._main == 0:
            self._become_program(far_end)
        os.close(far_end)
        os.close(self._output)
        if self._channel is not None:
            os.close(self._channel)

    def _become_program(self, report: int) -> None:
        report = program_start.high_descriptor(report)
        try:
            os.write(report, f"{self._boundary.pid_for_agent()} ".encode())
            program_start.start_program(
                self._order, self._output, self._channel, report, self._boundary.bind_to_supervisor
            )
        except BaseException as error:  # noqa: BLE001 - whatever it is, the agent must know
            os.write(report, str(error).encode(errors="replace")[:_TEXT_MAX])
        finally:
            os._exit(127)

    def _watch(self) -> None:
        """Return when the main process has ended, the deadline has passed, or the agent is gone or wants the tree
        killed."""
        wake = _wake_on_ended_child()
        waiting = select.poll()
        for descriptor in (wake.fileno(), self._link.fileno(), self._report):
            waiting.register(descriptor, select.POLLIN)
        self._reap()  # it may have ended before there was a wake-up
        while not self._over and self._status is None:
            left_s = self._switch.left_s(self._hold_ns)
            if left_s <= 0:
                self._by_switch = self._over = True
                self._late_s = -left_s
                break
            for descriptor, _ in waiting.poll(max(1, min(TICK_S, left_s) * 1000)):
                if descriptor == self._link.fileno():
                    self._on_message()
                elif descriptor == wake.fileno():
                    wake.recv(_TEXT_MAX)
                    self._reap()
                elif self._read_start():
                    waiting.unregister(descriptor)
        signal.set_wakeup_fd(-1)
        while not self._over and not self._read_start():
            continue

    def _read_start(self) -> bool:
        """Read what the program writes before exec: its pid, and why it failed. True when its end of the pipe has
        closed: it runs, or has failed."""
        if not self._started and (words := os.read(self._report, _TEXT_MAX)):
            self._words += words
            return False
        if not self._started and not self._failure:
            started = {"is": "started", "pid": int(self._words or -1)}
            packets.try_send(self._link, started if system.IS_LINUX else started | {"at": self._forked_at})
        self._started = True
        return True

    @property
    def _failure(self) -> str:
        return self._words.partition(b" ")[2].decode(errors="replace")

    def _on_message(self) -> None:
        message, _ = packets.receive(self._link)
        self._alone = message is None
        if message is None or message["do"] == "kill":
            self._over = True
        elif message["do"] == "signal":
            # That it may not, macOS also says of a process that has ended and was not reaped yet.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._main, message["number"])

    def _reap(self) -> int:
        killed = 0
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return killed
            if pid == 0:
                return killed
            if pid == self._main:
                self._status = status
            killed += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL

    def _kill_main(self) -> None:
        """Kill it by its pid: it may not have joined the group by which the others are killed."""
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self._main, signal.SIGKILL)

    def _see_main_end(self) -> None:
        """Elsewhere than on Linux a process that ends may be gone from its group before it can be reaped."""
        with suppress(ChildProcessError):
            if self._status is None:
                self._status = os.waitpid(self._main, 0)[1]

    def _forget(self) -> None:
        """Where the supervisor outlives the agent, it clears away what the agent wrote down."""
        if self._alone:  # else the agent wants to read in them how the tree ended
            for path in self._order["groups_to_join"]:
                cgroup.remove(path)
        if (record := self._order["record"]) is not None:
            with suppress(OSError):
                os.unlink(record)  # noqa: PTH108

    def _report_end(self, leftovers: int) -> None:
        status = self._status
        packets.try_send(
            self._link,
            {
                "is": "ended",
                "code": os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
                "signal": os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None,
                "leftovers": leftovers,
                "switch": self._by_switch,
                "late_s": self._late_s,
                "failed": self._failure,
            },
        )


def _wake_on_ended_child() -> socket.socket:
    """A socket that can be read whenever a child has ended."""
    wake, waker = socket.socketpair()
    wake.setblocking(False)
    waker.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # one must be there for the wake-up descriptor to be written
    signal.set_wakeup_fd(waker.detach(), warn_on_full_buffer=False)
    return wake
