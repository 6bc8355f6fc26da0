"""The few calls of Linux that Python 3.11 does not offer, by ctypes. Decides nothing."""

from __future__ import annotations

import ctypes
import os
import signal

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_SLAVE = 2, 4, 8, 16384, 1 << 19

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """SIGKILL for this process when the thread that forked it ends. A change of user clears it."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def gain_no_privileges() -> None:
    """No program that this process executes, now or later, gets more rights than it has."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def call_me(name: str) -> None:
    """The name that process lists show; at most 15 bytes."""
    _check(_libc.prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()), 0, 0, 0), "prctl")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def set_namespace(descriptor: int, kind: int) -> None:
    _check(_libc.setns(descriptor, kind), "setns")


def own_mounts() -> None:
    """From here on, what this process mounts is seen by it and its children only."""
    unshare(CLONE_NEWNS)
    _mount(b"none", b"/", None, _MS_REC | _MS_SLAVE)


def mount_proc() -> None:
    """Put a /proc over the old one that shows this PID namespace only."""
    _mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int) -> None:
    _check(_libc.mount(source, target, kind, ctypes.c_ulong(flags), None), "mount")


def _prctl(option: int, value: int) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl")


def _check(result: int, call: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
