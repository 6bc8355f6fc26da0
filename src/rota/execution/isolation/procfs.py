"""What /proc says about processes. Reads only; a process that ends meanwhile is left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple


class ProcessInfo(NamedTuple):
    """One process at one moment; pid and `ticks` (its start, in clock ticks since boot) name it for good."""

    pid: int
    state: str
    parent: int
    group: int
    ticks: int
    threads: int

    @property
    def is_alive(self) -> bool:
        """Whether any of its threads runs; `state` is that of the first, which may have ended before the others."""
        return self.state not in "ZX" or self.threads > 1

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped by a signal, or is held by a tracer."""
        return self.state in "Tt"


def find(pid: int) -> ProcessInfo | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib would be imported for every fork
            text = file.read()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return ProcessInfo(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[19]), int(fields[17]))


def same_start(one: int, other: int) -> bool:
    """True if two start times of one pid belong to one process."""
    return one == other


def all_processes() -> Iterator[ProcessInfo]:
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and (seen := find(int(name))):
            yield seen


def own_children() -> list[int]:
    """The children of this process, which has one thread; the quickest way to know them, if the kernel offers it."""
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:  # noqa: PTH123
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return [seen.pid for seen in all_processes() if seen.parent == pid]


def environment_has(pid: int, entry: bytes) -> bool:
    """Whether the process was started with that `NAME=value` in its environment."""
    return any(entry in _read(path).split(b"\0") for path in (f"/proc/{pid}/environ", *_environs_of_threads(pid)))


def _environs_of_threads(pid: int) -> Iterator[str]:
    """A thread that has ended shows no environment any more; the others of its process do."""
    seen = find(pid)
    if seen is not None and seen.state in "ZX":
        with suppress(OSError):
            yield from (f"/proc/{pid}/task/{name}/environ" for name in os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""


def same_process(pid: int, ticks: int) -> int | None:
    """A pidfd of that very process, not of a later one with its pid; none if it is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return None
    seen = find(pid)
    if seen and seen.is_alive and seen.ticks == ticks:
        return descriptor
    os.close(descriptor)
    return None


def pid_of(descriptor: int) -> int:
    """The number, in our own PID namespace, of the process that a pidfd stands for; -1 when it is gone."""
    with open(f"/proc/self/fdinfo/{descriptor}") as file:  # noqa: PTH123
        return next(int(line.split()[1]) for line in file if line.startswith("Pid:"))
