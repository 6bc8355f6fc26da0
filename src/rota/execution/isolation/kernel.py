"""The few calls of Linux that Python 3.11 does not offer, by ctypes. Decides nothing.

Under another system those marked `_where_linux` do nothing: what is then not promised is in `promises`.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterable
from typing import ParamSpec

from rota import system

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_KEYCTL_JOIN_SESSION_KEYRING = 1
_CAPABILITY_VERSION_3 = 0x20080522
_LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF = 444, 446
_LANDLOCK_VERSION, _LANDLOCK_SCOPES_SINCE, _LANDLOCK_SCOPE_SIGNAL = 1, 6, 2
_CLOCK_MONOTONIC = 1
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_SLAVE = 2, 4, 8, 16384, 1 << 19

P = ParamSpec("P")
_libc = ctypes.CDLL(None, use_errno=True)


def _where_linux(call: Callable[P, None]) -> Callable[P, None]:
    return call if system.IS_LINUX else _nothing


def _nothing(*_: object, **__: object) -> None:
    """There is no such thing here."""


@_where_linux
def die_with_parent() -> None:
    """SIGKILL for this process when the thread that forked it ends. A change of user clears it."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@_where_linux
def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


@_where_linux
def gain_no_privileges() -> None:
    """No program that this process executes, now or later, gets more rights than it has."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


class _TimerSetting(ctypes.Structure):
    _fields_ = (("every_s", ctypes.c_long), ("every_ns", ctypes.c_long), ("s", ctypes.c_long), ("ns", ctypes.c_long))


def new_timer() -> int | None:
    """A descriptor that can be read once the timer has run out; none where there are no such timers."""
    if not system.IS_LINUX:
        return None
    timer = int(_libc.timerfd_create(_CLOCK_MONOTONIC, os.O_CLOEXEC))
    return None if timer < 0 else timer


def set_timer(timer: int, seconds: float) -> None:
    """Let a timer run out after so long; 0: never."""
    setting = _TimerSetting(0, 0, int(seconds), int(seconds % 1 * 1e9))
    _libc.timerfd_settime(timer, 0, ctypes.byref(setting), None)


@_where_linux
def hide() -> None:
    """Nobody without CAP_SYS_PTRACE may read the memory or environment of this process, trace it, or take its
    descriptors, not even the same user. Children inherit it until they execute a program."""
    _prctl(_PR_SET_DUMPABLE, 0)


@_where_linux
def wipe_variables(names: Iterable[str]) -> None:
    """Overwrite the values of these variables where the kernel shows them, in /proc/PID/environ, unless they were set
    by this process. It must then unset them."""
    wanted = {name.encode() for name in names}
    environ = ctypes.POINTER(ctypes.c_void_p).in_dll(_libc, "environ")
    at = 0
    while address := environ[at]:
        name, _, value = ctypes.string_at(address).partition(b"=")
        if name in wanted:
            ctypes.memset(address + len(name) + 1, 0, len(value))
        at += 1


@_where_linux
def bar_capabilities() -> None:
    """No program that this process executes can have a capability. Needs one itself: nothing happens without."""
    for number in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0) < 0:
            return  # there are no more of them, or we may not


@_where_linux
def drop_capabilities() -> None:
    """Keep no right of root but its number. After `gain_no_privileges`, which sees to it that executed programs get
    none back where `bar_capabilities` could not."""
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    nothing = (ctypes.c_uint32 * 6)()
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, nothing), "capset")


@_where_linux
def join_new_keyring() -> None:
    """Leave the keyring of the session, which may hold keys of whoever started the agent, for an empty one."""
    if number := _KEYCTL.get(os.uname().machine):
        _libc.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None)  # a kernel without keyrings has nothing to leave


@_where_linux
def confine() -> None:
    """From here on, signals and ptrace of this process and its children reach only each other, whoever they are.

    Where it `can_confine`; elsewhere nothing happens. After `gain_no_privileges`.
    """
    if not can_confine():
        return
    scopes = (ctypes.c_uint64 * 3)(0, 0, _LANDLOCK_SCOPE_SIGNAL)
    rules = _libc.syscall(_LANDLOCK_CREATE_RULESET, scopes, ctypes.sizeof(scopes), 0)
    _check(rules, "landlock_create_ruleset")
    _check(_libc.syscall(_LANDLOCK_RESTRICT_SELF, rules, 0), "landlock_restrict_self")
    os.close(rules)


def can_confine() -> bool:
    """Whether this kernel keeps signals within a set of processes: Linux 6.12 with Landlock."""
    if not system.IS_LINUX:
        return False
    version: int = _libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION)
    return version >= _LANDLOCK_SCOPES_SINCE


@_where_linux
def set_name(name: str) -> None:
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
