"""The last steps of a process on its way to be the user's program: whom it becomes, what it has, and what it loses.

Runs in the child of a supervisor, between fork and exec. It either does not return or raises.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rota.runners.boundary import cgroup, kernel

CHANNEL = 3
"""The number under which a program finds its channel."""
_OUT_OF_THE_WAY = 64
_OPEN_MAX = 65_536
"""Numbers of descriptors in a supervisor are small; where there is no limit, to try them all would never end."""
_PYTHON_CHANGED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD)


class Failed(Exception):
    """One of the steps did not work; says which and why."""


def become(order: dict[str, Any], output: int, channel: int | None, report: int, bind: Callable[[], None]) -> NoReturn:
    """Be the program of the order. `report`, which is out of the way, closes when it is; `bind` ties this process to
    its supervisor."""
    os.setsid()
    for number in _PYTHON_CHANGED:
        signal.signal(number, signal.SIG_DFL)
    _join_groups(order["groups_to_join"])
    _bound(order)
    kernel.bar_capabilities()  # while this process has the right to
    _become_user(order["user"])
    _lose_privileges()
    bind()
    if order["directory"] is not None:
        with _step(f"change to directory {order['directory']!r}"):
            os.chdir(order["directory"])
    _keep_only(output, channel, report)
    with _step(f"execute {order['argv'][0]!r}"):
        os.execvpe(order["argv"][0], order["argv"], order["env"])  # noqa: S606 - no shell is the point


def _join_groups(paths: list[str]) -> None:
    for path in paths:
        with _step(f"join control group {path}"):
            cgroup.join(path)


def _bound(order: dict[str, Any]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, (soft, hard) in order["rlimits"].items():
        with _step(f"set {name} to {soft}"):
            resource.setrlimit(getattr(resource, name), (soft, hard))


def _become_user(user: dict[str, Any] | None) -> None:
    if user is None:
        return
    with _step(f"become user {user['name']}"):
        os.setgroups(user["groups"])
        os.setgid(user["gid"])  # by root these set all of them: real, effective and saved
        os.setuid(user["uid"])


def _lose_privileges() -> None:
    """Whoever it is, it has no capability, can gain none, and cannot touch processes of other trees, or ours."""
    with _step("give up privileges"):
        kernel.gain_no_privileges()
        kernel.drop_capabilities()
        kernel.join_new_keyring()
        kernel.confine()


def _keep_only(output: int, channel: int | None, report: int) -> None:
    """Nothing as input, `output` for both outputs, perhaps the channel, and no other descriptor."""
    output = out_of_the_way(output)
    channel = None if channel is None else out_of_the_way(channel)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    kept = CHANNEL
    if channel is not None:
        os.dup2(channel, CHANNEL)
        kept += 1
    os.closerange(kept, report)
    limit = os.sysconf("SC_OPEN_MAX")
    os.closerange(report + 1, min(limit, _OPEN_MAX) if limit > 0 else _OPEN_MAX)


def out_of_the_way(descriptor: int) -> int:
    """A copy with a number that no standard descriptor needs."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)


@contextmanager
def _step(deed: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Failed(f"cannot {deed}: {reason}") from error
