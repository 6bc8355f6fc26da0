"""The zygote: a small process with one thread that forks supervisors, so that the agent never forks.

Started by path, without site packages: `python -I -S zygote.py KIND CONTROL SWITCH [HANDLE] AGENT`. It dies with
the agent. For the namespace kind it is itself init of an outer PID namespace, whose end is the end of every tree in it:
that closes the gap in which a supervisor is forked but has not yet asked to die with its parent. Other supervisors
outlive it.

It never runs user code, and never waits for anything but the next order.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import traceback
from typing import NoReturn

if not __package__:  # started by path; behind the standard library, so that nothing there is shadowed
    sys.path.append(__file__.rsplit("/", 4)[0])

from rota import system
from rota.execution.isolation import kernel, packets, procfs
from rota.execution.isolation.boundaries import boundary
from rota.execution.isolation.dead_mans_switch import DeadMansSwitch
from rota.execution.isolation.supervisor import Supervisor
from rota.execution.isolation.waiting import is_readable, wall_s


class Zygote:
    """Forks a supervisor for each order of the agent."""

    def __init__(self, kind: str, control: socket.socket, switch: DeadMansSwitch, handles: list[int]) -> None:
        self._kind = kind
        self._control = control
        self._switch = switch
        self._own: list[int] = handles
        """Descriptors that supervisors must close."""
        if system.IS_LINUX:
            self._self = os.pidfd_open(os.getpid())
            self._home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            self._own += [self._self, self._home]

    def check_namespace(self) -> None:
        """Raise OSError if namespaces cannot be made here, instead of failing with every order."""
        if self._kind == "namespace":
            kernel.unshare(kernel.CLONE_NEWPID)
            kernel.set_namespace(self._home, kernel.CLONE_NEWPID)

    def check_hidden(self) -> None:
        """Raise if a hidden process cannot see whom a pidfd stands for: in this kind the agent, also hidden, must."""
        if self._kind == "namespace":
            try:
                procfs.pid_of(self._self)
            except PermissionError as error:
                raise OSError(f"only root can hide and read its own descriptors (Linux 5.14): {error}") from error

    def serve(self) -> None:
        """Fork until the agent is gone."""
        while True:
            message, descriptors = packets.receive(self._control)
            if message is None:
                return
            self._fork(descriptors)

    def _fork(self, descriptors: list[int]) -> None:
        link = socket.socket(fileno=descriptors[0])
        try:
            if child := self._fork_supervisor():
                self._announce(child, link)
            else:
                self._supervise(link, descriptors)
        except OSError as error:
            packets.try_send(link, {"is": "unforked", "why": str(error)})
        link.close()
        for descriptor in descriptors[1:]:
            os.close(descriptor)

    def _announce(self, child: int, link: socket.socket) -> None:
        """Send the agent a pidfd of the supervisor; without Linux its pid. A pid of this zygote's own PID namespace
        means nothing to the agent."""
        if not system.IS_LINUX:
            packets.try_send(link, {"is": "forked", "pid": child, "at": wall_s()})
            return
        pidfd = os.pidfd_open(child)
        packets.try_send(link, {"is": "forked"} | ({} if self._kind == "namespace" else {"pid": child}), (pidfd,))
        os.close(pidfd)

    def _fork_supervisor(self) -> int:
        """Fork; for the namespace kind into a PID namespace of its own, and come home."""
        if self._kind != "namespace":
            return os.fork()
        kernel.unshare(kernel.CLONE_NEWPID)
        try:
            child = os.fork()
        except OSError:
            kernel.set_namespace(self._home, kernel.CLONE_NEWPID)
            raise
        if child:
            kernel.set_namespace(self._home, kernel.CLONE_NEWPID)
        return child

    def _supervise(self, link: socket.socket, descriptors: list[int]) -> NoReturn:
        try:
            self._settle()
            if not system.IS_LINUX:
                del descriptors[3]  # the handle need only be open
            _, output, packed, *channel = descriptors
            order = packets.unpack(packed)
            inside = boundary(self._kind, order["group"])
            Supervisor(order, link, output, channel[0] if channel else None, self._switch, inside).run()
        except BaseException as error:  # noqa: BLE001 - the agent must hear of it, and no child may go on as a zygote
            traceback.print_exc()
            packets.try_send(link, {"is": "unforked", "why": repr(error)})
        finally:
            os._exit(0)

    def _settle(self) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kernel.set_name("rota-tree")
        if self._kind == "namespace":
            kernel.die_with_parent()
            _leave_if_ended(self._self)
        self._control.close()
        for descriptor in self._own:
            os.close(descriptor)


def enter_namespace() -> None:
    """Go on as init of a new PID namespace. The process that called this waits outside; each dies with the other."""
    try:
        kernel.unshare(kernel.CLONE_NEWPID)
    except PermissionError:
        _enter_user_namespace(os.getuid(), os.getgid())
    parent = os.pidfd_open(os.getpid())
    if child := os.fork():
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    kernel.die_with_parent()
    _leave_if_ended(parent)
    os.close(parent)


def _enter_user_namespace(uid: int, gid: int) -> None:
    """Without root: a namespace in which we keep our one user and group, and may make PID namespaces."""
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
            file.write(text)


def _leave_if_ended(process: int) -> None:
    """Exit if the process that we should die with ended before we asked the kernel for that."""
    if is_readable(process, 0):
        os._exit(1)


def _begin_clean(agent: int) -> None:
    """Die with the agent, and hand on nothing of how it was started."""
    kernel.die_with_parent()
    if os.getppid() != agent:
        sys.exit(1)
    kernel.set_name("rota-zygote")
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def main(kind: str, control: int, switch: int, *others: int) -> None:
    *handles, agent = others
    _begin_clean(agent)
    link = socket.socket(fileno=control)
    deadline = DeadMansSwitch(switch, writable=False)
    try:
        if kind == "namespace":
            enter_namespace()
        zygote = Zygote(kind, link, deadline, handles)
        zygote.check_namespace()
        kernel.hide()  # only now: the maps of a user namespace are written through files that then belong to root
        zygote.check_hidden()
    except OSError as error:
        packets.try_send(link, {"is": "refused", "why": str(error)})
        return
    os.close(switch)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps; the agent has a descriptor of each child
    gc.disable()
    gc.freeze()
    packets.try_send(link, {"is": "ready"})
    zygote.serve()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
