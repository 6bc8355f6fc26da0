"""Finds what a task has left behind in its worker: processes, threads, or state that cannot be put back.

The worker is a subreaper: every orphan below it becomes its child, so that it sees whether there are any. The state of
the process is remembered when the app was loaded, and put back after each item. What Python modules keep (global names,
loggers, imported modules, `sys.path`) belongs to the app and is not touched.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # no stubs know it; `signal` makes enum members, which takes far longer
import ctypes
import gc
import locale
import os
import resource
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rota.execution.isolation import kernel, processes
from rota.execution.worker.clock import monotonic

OWN = "rota-"
"""How the names of our own threads begin."""
THREADS_S = 0.2
"""How long threads may take to end after their item."""
_HELPER = OWN + "helper"
_LOOK_S = 0.001
_NAMED = 3
_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})
_SIGNALS = [int(number) for number in sorted(signal.valid_signals())]
_libc = ctypes.CDLL(None)
_get_environ = getattr(_libc, "_NSGetEnviron", None)
"""macOS shows the variable itself to no library."""
_Entries = ctypes.POINTER(ctypes.c_char_p)
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class StatePart(NamedTuple):
    """One thing that can be read and put back; `write` may raise. It is read after every item, so `read` is short."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


class ProcessState:
    """The values of all parts now, to which `restore` returns."""

    def __init__(self, parts: list[StatePart]) -> None:
        self._parts = tuple((part, copy(part.read())) for part in parts)
        self._reads = [part.read for part in parts]
        self._values = [value for _, value in self._parts]

    def is_changed(self) -> bool:
        """True if any part differs from its remembered value."""
        try:
            return [read() for read in self._reads] != self._values
        except (OSError, ValueError):  # closed, for example: that is a change too
            return True

    def restore(self) -> list[str]:
        """Put every part back. Returns the names of those that could not be."""
        if not self.is_changed():
            return []
        return [part.name for part, value in self._parts if _read(part) != value and not _is_restored(part, value)]


def process_state(folder_to_empty: str = "") -> ProcessState:
    """What the whole process has, and its main thread; and a folder in which items leave nothing."""
    folder = _folder()
    standard_input = os.dup(0)
    parts = [
        StatePart("working folder", _working_folder, lambda _: os.chdir(folder)),
        StatePart("umask", _umask, os.umask),
        StatePart("environment", lambda: os.environ._data, _set_environment),  # type: ignore[attr-defined]  # noqa: SLF001
        StatePart("environment of programs", _handed_on, _set_handed_on),
        StatePart("time zone", lambda: (time.tzname, time.timezone), lambda _: time.tzset()),
        StatePart("signal handlers", lambda: [*map(_signal.getsignal, _SIGNALS)], _set_handlers),
        StatePart("timers", lambda: [_signal.getitimer(timer)[0] > 0 for timer in _TIMERS], _stop_timers),
        StatePart("limits", lambda: [*map(resource.getrlimit, _LIMITS)], _set_limits),
        StatePart("user", _user, lambda _: None),
        StatePart("locale", partial(locale.setlocale, locale.LC_ALL), partial(locale.setlocale, locale.LC_ALL)),
        StatePart("arguments", lambda: sys.argv, lambda value: setattr(sys, "argv", list(value))),
        StatePart("recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
        StatePart("garbage collection", gc.isenabled, lambda is_on: gc.enable() if is_on else gc.disable()),
        StatePart("socket timeout", socket.getdefaulttimeout, socket.setdefaulttimeout),
        StatePart("standard input", _standard_input, lambda _: os.dup2(standard_input, 0)),
    ]
    if folder_to_empty:
        parts.append(
            StatePart(
                "files in its working folder",
                lambda: sorted(os.listdir(folder_to_empty)),  # noqa: PTH208
                lambda kept: _clear_folder(folder_to_empty, kept),
            )
        )
    return ProcessState(parts + _thread_parts())


def thread_state() -> ProcessState:
    """What belongs to a thread alone."""
    return ProcessState(_thread_parts())


def _thread_parts() -> list[StatePart]:
    parts = [
        StatePart("blocked signals", partial(_signal.pthread_sigmask, signal.SIG_BLOCK, ()), _set_blocked_signals),
        StatePart("priority", partial(os.getpriority, os.PRIO_PROCESS, 0), _set_priority),
    ]
    if hasattr(os, "sched_getaffinity"):
        parts.append(StatePart("processors", partial(os.sched_getaffinity, 0), partial(os.sched_setaffinity, 0)))
    return parts


def _set_blocked_signals(numbers: set[int | signal.Signals]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, numbers)


def _read(part: StatePart) -> Any:
    try:
        return part.read()
    except (OSError, ValueError):  # closed, for example: that is a change too
        return None


def _is_restored(part: StatePart, value: Any) -> bool:
    with suppress(OSError, ValueError, TypeError, RecursionError, locale.Error):
        part.write(value)
    return bool(_read(part) == value)


def _working_folder() -> tuple[int, int]:
    found = os.stat(".")  # noqa: PTH116 - a path would cost more than the question
    return found.st_dev, found.st_ino


def _standard_input() -> tuple[int, int]:
    found = os.fstat(0)
    return found.st_dev, found.st_ino


def _clear_folder(folder: str, kept: list[str]) -> None:
    """Remove all but what loading the app has made."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in kept:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)  # noqa: PTH108


def _folder() -> str:
    with suppress(FileNotFoundError):  # it was removed: then a worker whose item has left it is replaced
        return str(Path.cwd())
    return "/"


def _umask() -> int:
    """It can only be read by setting it."""
    value = os.umask(0o077)
    os.umask(value)
    return value


def _handed_on() -> frozenset[bytes]:
    """The `NAME=value` that programs get that are started: `os.putenv` and C code change only that."""
    entries = _environ()
    found, at = set(), 0
    while (entry := entries[at]) is not None:
        found.add(entry)
        at += 1
    return frozenset(found)


def _environ() -> Any:
    if _get_environ is None:
        return _Entries.in_dll(_libc, "environ")
    _get_environ.restype = ctypes.POINTER(_Entries)
    return _get_environ().contents


def _set_environment(own: dict[bytes, bytes]) -> None:
    for name in [name for name in os.environb if name not in own]:
        del os.environb[name]
    os.environb.update(own)
    time.tzset()


def _set_handed_on(entries: frozenset[bytes]) -> None:
    for entry in _handed_on() - entries:
        os.unsetenv(entry.partition(b"=")[0])
    for entry in entries - _handed_on():
        name, _, text = entry.partition(b"=")
        os.putenv(name, text)
    time.tzset()


def _set_handlers(value: list[Any]) -> None:
    for number, handler in zip(_SIGNALS, value, strict=True):
        if _signal.getsignal(number) != handler and handler is not None:
            signal.signal(number, handler)


def _stop_timers(value: list[bool]) -> None:
    for timer, is_running in zip(_TIMERS, value, strict=True):
        if not is_running:
            signal.setitimer(timer, 0)


def _set_limits(value: list[tuple[int, int]]) -> None:
    for number, limits in zip(_LIMITS, value, strict=True):
        if resource.getrlimit(number) != limits:
            resource.setrlimit(number, limits)


def _set_priority(value: int) -> None:
    os.setpriority(os.PRIO_PROCESS, 0, value)


def _user() -> tuple[int, ...]:
    return os.getuid(), os.geteuid(), os.getgid(), os.getegid()


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
