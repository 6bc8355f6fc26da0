"""The steps between fork and exec of the user's program: groups, limits, user, privileges, folder, descriptors.

Runs in the child of a supervisor. It either does not return or raises. The order matters: groups and capabilities need
the rights of the node, so they come before the change of user.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rota.execution.isolation import cgroup, kernel

CHANNEL = 3
"""The number under which a program finds its channel."""
_OUT_OF_THE_WAY = 64
_OPEN_MAX = 65_536
"""Numbers of descriptors in a supervisor are small; where there is no limit, to try them all would never end."""
_PYTHON_CHANGED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD)


class StepFailed(Exception):
    """One of the steps failed; the message says which and why."""


def start_program(
    order: dict[str, Any], output: int, channel: int | None, report: int, bind_to_supervisor: Callable[[], None]
) -> NoReturn:
    """Replace this process with the program of the order.

    `report` is a pipe above the standard descriptors: it closes when the program runs. `bind_to_supervisor` makes this
    process die with its supervisor.
    """
    os.setsid()
    for number in _PYTHON_CHANGED:
        signal.signal(number, signal.SIG_DFL)
    _bound(order)
    kernel.bar_capabilities()  # while this process has the right to
    _become_user(order["user"])
    _drop_privileges()
    bind_to_supervisor()
    if order["directory"] is not None:
        with _step(f"change to directory {order['directory']!r}"):
            os.chdir(order["directory"])
    _keep_only(output, channel, report)
    with _step(f"execute {order['argv'][0]!r}"):
        os.execvpe(order["argv"][0], order["argv"], order["env"])  # noqa: S606 - no shell is the point


def _bound(order: dict[str, Any]) -> None:
    for path in order["groups_to_join"]:
        with _step(f"join control group {path}"):
            cgroup.join(path)
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


def _drop_privileges() -> None:
    """Whatever its user, the program has no capability, can gain none, and cannot signal processes of other trees."""
    with _step("give up privileges"):
        kernel.gain_no_privileges()
        kernel.drop_capabilities()
        kernel.join_new_keyring()
        kernel.confine()


def _keep_only(output: int, channel: int | None, report: int) -> None:
    """Set up an empty input, `output` as both outputs and perhaps the channel; close every other descriptor."""
    output = high_descriptor(output)
    channel = None if channel is None else high_descriptor(channel)
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


def high_descriptor(descriptor: int) -> int:
    """A copy with a number that no standard descriptor needs."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)


@contextmanager
def _step(deed: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise StepFailed(f"cannot {deed}: {reason}") from error
