"""Deeds against processes: those that hold a program, and a task beside it."""

# ruff: noqa: PTH115, PTH208

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import select
import signal
import struct

from tests.execution.hostile.calls import (
    IS_X86,
    beyond,
    call,
    in_user_namespace,
    libc,
    read,
    something,
    table,
    writable,
)

SIGNALS = (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1)
READ = ("environ", "mem", "maps", "smaps", "pagemap", "auxv", "syscall", "stack", "io", "personality")
LINKS = ("cwd", "root", "exe", "fd/0", "ns/mnt")
WRITE = {
    "oom_score_adj": b"1",
    "clear_refs": b"1",
    "coredump_filter": b"0x33",
    "sched": b"0",
    "timerslack_ns": b"50000",
}


def against(name):
    """Deeds against one of them."""

    def whom(c):
        """Its number, if that is not one of our own: a PID namespace has the same numbers for others."""
        if os.getsid(c[name]) == os.getsid(0):
            raise OSError(0, "one of its own")
        return c[name]

    def deeds(family, **found):
        table(family, **{f"{name}: {deed}": lambda c, do=do: do(whom(c)) for deed, do in found.items()})

    deeds(
        "signals",
        **{each.name: lambda pid, each=each: os.kill(pid, each) for each in SIGNALS},
        **{
            "a signal by pidfd": lambda pid: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGKILL),
            "a signal to its thread": lambda pid: call("tgkill", pid, pid, signal.SIGKILL),
            "a signal to its group": lambda pid: os.killpg(group_of(pid), signal.SIGKILL),
            "a signal with a value": lambda pid: call("sigqueue", pid, signal.SIGKILL, 0),
            "a signal by a pipe": by_pipe,
        },
    )
    deeds(
        "tracing",
        **{
            "PTRACE_SEIZE": lambda pid: call("ptrace", 0x4206, pid, 0, 0),
            "PTRACE_ATTACH": lambda pid: call("ptrace", 16, pid, 0, 0),
            "process_vm_readv": lambda pid: vm(pid, "process_vm_readv"),
            "process_vm_writev": lambda pid: vm(pid, "process_vm_writev"),
            "seize as root of a user namespace": lambda pid: in_user_namespace(
                lambda _: call("ptrace", 0x4206, pid, 0, 0)
            )({}),
            "advise its memory": beyond_of(madvise, errno.EFAULT, errno.EINVAL, errno.ENOMEM),
            "move its pages": lambda pid: call("syscall", 279, pid, 0, 0, 0, 0, 0) if IS_X86 else refused(),
        },
    )
    deeds(
        "proc",
        **{f"read {file}": lambda pid, file=file: read_some(f"/proc/{pid}/{file}") for file in READ},
        **{f"follow {link}": lambda pid, link=link: os.readlink(f"/proc/{pid}/{link}") for link in LINKS},
        **{
            f"write {file}": lambda pid, file=file, to=to: write(f"/proc/{pid}/{file}", to)
            for file, to in WRITE.items()
        },
        **{"write mem": lambda pid: writable(f"/proc/{pid}/mem")},
    )
    deeds(
        "scheduling",
        **{
            "bound its processors": lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),
            "bound its descriptors": lambda pid: resource.prlimit(
                pid, resource.RLIMIT_NOFILE, resource.prlimit(pid, resource.RLIMIT_NOFILE)
            ),
            "slow it down": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid)),
            "slow its files down": lambda pid: call("syscall", 251, 1, pid, 4 | 2 << 13) if IS_X86 else refused(),
        },
    )
    deeds(
        "descriptors",
        **{
            "list its descriptors": lambda pid: os.listdir(f"/proc/{pid}/fd"),
            "open one of them": lambda pid: os.open(f"/proc/{pid}/fd/0", os.O_RDONLY),
            "read about one of them": lambda pid: read(f"/proc/{pid}/fdinfo/0"),
            "take one of them": lambda pid: call("syscall", 438, os.pidfd_open(pid), 0, 0),
            "find the deadline in its memory": open_map,
        },
    )


def group_of(pid):
    """Its process group, which has no number in another PID namespace; 0 would be our own."""
    return something(os.getpgid(pid))


def refused():
    raise OSError(0, "the number of this call is not known here")


def beyond_of(deed, *errors):
    return lambda pid: beyond(lambda _: deed(pid), *errors)({})


def read_some(path):
    """Memory can be opened by whoever may read it; what is at 0 is nothing."""
    if path.endswith("/mem"):
        os.close(os.open(path, os.O_RDONLY))
    else:
        something(read(path))


def write(path, data):
    file = os.open(path, os.O_WRONLY)
    os.write(file, data)


def vm(pid, function):
    """Eight bytes at a place where it has memory, if it shows where; the check comes before."""
    into = ctypes.create_string_buffer(8)
    near = struct.pack("PN", ctypes.addressof(into), 8)
    far = struct.pack("PN", 1, 8)
    if getattr(libc, function)(pid, near, 1, far, 1, 0) < 0 and ctypes.get_errno() != errno.EFAULT:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def madvise(pid):
    """MADV_COLD on nothing that is there."""
    far = struct.pack("PN", 0, 4096)
    call("syscall", 440, os.pidfd_open(pid), far, 1, 20, 0)


def by_pipe(pid):
    """A pipe whose news are told to somebody else, by SIGKILL if we choose so."""
    near, far = os.pipe()
    fcntl.fcntl(near, fcntl.F_SETOWN, pid)
    fcntl.fcntl(near, 10, signal.SIGKILL)
    fcntl.fcntl(near, fcntl.F_SETFL, os.O_ASYNC)
    os.write(far, b"x")
    pidfd = os.pidfd_open(pid)
    if not select.select([pidfd], [], [], 0.2)[0]:
        raise OSError(0, "it lives")


def open_map(pid):
    """Shared memory can be opened again where it is mapped."""
    for name in something(os.listdir(f"/proc/{pid}/map_files")):
        path = f"/proc/{pid}/map_files/{name}"
        if "switch" in os.readlink(path):
            return mmap.mmap(os.open(path, os.O_RDWR), 8)
    raise OSError(0, "it has none")


for each in ("agent", "zygote", "supervisor", "neighbour"):
    against(each)
