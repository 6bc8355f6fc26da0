"""Finds what a task has left behind in its worker: processes, threads, or state that cannot be put back.

The worker is a subreaper: every orphan below it becomes its child, so that it sees whether there are any.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from rota.execution.isolation import kernel, processes
from rota.execution.worker.clock import monotonic
from rota.execution.worker.process_state import process_state, thread_state

OWN = "rota-"
"""How the names of our own threads begin."""
THREADS_S = 0.2
"""How long threads may take to end after their item."""
_HELPER = OWN + "helper"
_LOOK_S = 0.001
_NAMED = 3


def adopt() -> None:
    """Become a subreaper: processes whose parents end become children of this one."""
    with suppress(OSError):  # elsewhere than on Linux only direct children are seen
        kernel.adopt_orphans()


def any_left() -> bool:
    """True if a child still runs. Children that have ended are reaped."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False


def children() -> set[int]:
    """The processes whose parent this is."""
    try:
        lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    except OSError:  # a thread has ended meanwhile, and its children are another's
        lists = []
    if lists:
        return {int(word) for text in lists for word in text.split()}
    return {seen.pid for seen in processes.all_processes() if seen.parent == os.getpid()}


def end_helpers(kept: set[int]) -> None:
    """End the helper processes of `multiprocessing`, which have the environment of the item that started them. If other
    processes are left too, they may need the helpers: then all are left, and killed together."""
    forks: Any = sys.modules.get("multiprocessing.forkserver")
    tracks: Any = sys.modules.get("multiprocessing.resource_tracker")
    server = forks and forks._forkserver  # noqa: SLF001 - there is no other way
    tracker = tracks and tracks._resource_tracker  # noqa: SLF001
    tracking = getattr(tracker, "_pid", None)
    serving = getattr(server, "_forkserver_pid", None)
    with suppress(Exception):  # they are another release's, or the task has ended them itself
        if serving is not None and serving not in kept and children() <= {serving, tracking, *kept}:
            server._stop()  # noqa: SLF001
        if tracking is not None and tracking not in kept and children() <= {tracking, *kept}:
            tracker._stop()  # noqa: SLF001


class Leftovers:
    """Remembers the state of the process before its first item, and restores it after each."""

    def __init__(self, folder: str = "") -> None:
        """`folder` is emptied after each item of what was not there at the start."""
        self._state = process_state(folder)
        self._thread_state = thread_state()
        self._stuck: list[str] = []
        self._threads = set(sys._current_frames())  # noqa: SLF001 - nothing else knows of threads made without `threading`
        self._children = children() if any_left() else set()
        """Processes that loading the app has started: they stay."""
        self._executor: ThreadPoolExecutor | None = None
        self._makers: dict[int, set[int]] = {}
        """By thread, the items that ran when it was first seen: one of them has started it."""

    def serve(self, loop: Any) -> None:
        """Provide the threads for `to_thread` of a loop, so that they can be told from threads of tasks."""
        self._loop = loop
        self._executor = ThreadPoolExecutor(thread_name_prefix=_HELPER)
        loop.set_default_executor(self._executor)

    def clear(self) -> str:
        """Put back what an item has changed, while no item runs. Returns what cannot be put back; an empty text if all
        is well."""
        self._makers.clear()
        found = []
        if self._has_processes():
            found.append("processes")
        if threads := self._remaining_threads():
            found.append(f"threads ({_some(threads)})")
        if stuck := self._state.restore() + self._stuck:
            found.append(f"what cannot be put back ({_some(stuck)})")
        return " and ".join(found)

    def clear_thread(self) -> None:
        """Put back the state of this thread after an item, before it runs another."""
        self._stuck += self._thread_state.restore()

    def is_clean(self, ended: Iterable[int], running: Iterable[int]) -> bool:
        """True if the items that have ended left nothing behind, as far as can be seen while others run."""
        if self._stuck or self._state.is_changed():
            return False
        running, possible = set(running), {*ended, *running}
        threads = self._foreign_threads()
        self._makers = {number: self._makers.get(number, possible) & running for number in threads}
        return all(self._makers.values())

    def _has_processes(self) -> bool:
        if not any_left():
            return False
        end_helpers(self._children)
        return any_left() and not children() <= self._children

    def _foreign_threads(self) -> dict[int, str]:
        idents = sys._current_frames().keys() - self._threads  # noqa: SLF001 - as above
        if not idents:
            return {}
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        found = {ident: names.get(ident, "without a name") for ident in idents}
        return {ident: name for ident, name in found.items() if not name.startswith(OWN)}

    def _remaining_threads(self) -> list[str]:
        if sys._current_frames().keys() <= self._threads:  # noqa: SLF001 - as above
            return []
        helpers = {thread.ident for thread in threading.enumerate() if thread.name.startswith(_HELPER)}
        if helpers and self._executor is not None:  # idle ones end now; one that works on is left behind
            self._executor.shutdown(wait=False, cancel_futures=True)
            self.serve(self._loop)
        until_s = monotonic() + THREADS_S
        pause = threading.Event()
        while remaining := self._foreign_threads() | self._alive(helpers):
            if monotonic() >= until_s:
                return sorted(remaining.values())
            pause.wait(_LOOK_S)
        return []

    def _alive(self, idents: set[int | None]) -> dict[int, str]:
        return {
            thread.ident: thread.name for thread in threading.enumerate() if thread.ident in idents and thread.ident
        }


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
