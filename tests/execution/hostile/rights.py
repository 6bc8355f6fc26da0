"""Deeds with the host: files, rights, namespaces, control groups, environments, and what a program is started with."""

# ruff: noqa: PTH102, PTH104, PTH106, PTH110, PTH123, PTH208

import ctypes
import errno
import os
import resource
import signal
import socket
import stat
import time

from tests.execution.hostile.calls import (
    IS_X86,
    NEWCGROUP,
    NEWIPC,
    NEWNET,
    NEWNS,
    NEWPID,
    NEWUTS,
    beyond,
    call,
    in_user_namespace,
    read,
    session_keyring,
    something,
    table,
    writable,
)


def in_and_out(path):
    os.rename(path, path + ".x")
    os.rename(path + ".x", path)


def linked(path):
    os.link(path, f"link.{os.getpid()}")
    read(f"link.{os.getpid()}")


table(
    "files",
    **{
        "read rota.toml": lambda c: read(c["toml"]),
        "write rota.toml": lambda c: writable(c["toml"]),
        "read rota.db": lambda c: read(c["db"]),
        "write rota.db": lambda c: writable(c["db"]),
        "read what rota.db has not taken in": lambda c: read(c["db"] + "-wal"),
        "share memory with rota.db": lambda c: writable(c["db"] + "-shm"),
        "put a file beside rota.db": lambda c: os.mkdir(f"{c['db']}-x.{os.getpid()}"),
        "list the state folder": lambda c: os.listdir(c["state"]),
        "read a record": lambda c: read(c["record"]),
        "lock a record": lambda c: call("flock", os.open(c["record"], os.O_RDONLY), 2 | 4),
        "forge a record": lambda c: os.mkdir(f"{c['state']}/forged.{os.getpid()}"),
        "rename the state folder": lambda c: in_and_out(c["state"]),
        "list the output of others": lambda c: os.listdir(c["logs"]),
        "write the output of others": lambda c: writable(c["log"]),
        "link to rota.toml": lambda c: linked(c["toml"]),
        "list the working folders": lambda c: os.listdir(c["work"]),
        "enter another's working folder": lambda c: os.listdir(c["victim"]),
        "put a folder beside the working folders": lambda c: os.mkdir(f"{c['work']}/x.{os.getpid()}"),
        "read /etc/shadow": lambda c: read("/etc/shadow"),
        "write /etc/passwd": lambda c: writable("/etc/passwd"),
        "write a sysctl": lambda c: writable("/proc/sys/kernel/core_pattern"),
    },
)


def by_handle(path):
    """A file by a number that passes by all folders."""
    handle = ctypes.create_string_buffer(8 + 128)
    ctypes.cast(handle, ctypes.POINTER(ctypes.c_uint32))[0] = 128
    call("name_to_handle_at", -100, path.encode(), handle, ctypes.byref(ctypes.c_int()), 0)
    folder = os.open("/", os.O_RDONLY)
    call("open_by_handle_at", folder, handle, os.O_RDONLY)


table(
    "rights",
    **{
        "become another": lambda c: os.setresuid(0, 0, 0) if os.getuid() else os.setresuid(12345, 12345, 12345),
        "change groups": lambda c: os.setgroups([0, 42]),
        "give a file away": lambda c: os.chown(c["own"], 54321, 54321),
        "make a device": lambda c: os.mknod(f"device.{os.getpid()}", stat.S_IFBLK | 0o600, os.makedev(8, 0)),
        "change its root": lambda c: os.chroot("/"),
        "mount": beyond(lambda c: call("mount", b"none", c["own_folder"].encode(), b"none", 0, None), errno.ENODEV),
        "unmount": beyond(lambda c: call("umount2", c["own_folder"].encode(), 0), errno.EINVAL),
        "set the clock": lambda c: time.clock_settime(time.CLOCK_REALTIME, time.time()),
        "set the name of the host": lambda c: socket.sethostname(socket.gethostname()),
        "raise a hard limit": lambda c: [resource.setrlimit(resource.RLIMIT_CORE, (n, n)) for n in (0, 1)],
        "be nicer to itself": lambda c: os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) - 1),
        "run in real time": lambda c: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
        "restart the machine": beyond(lambda c: call("reboot", 0x12345), errno.EINVAL),
        "open a file by handle": lambda c: by_handle(c["own"]),
        "read the kernel's log": lambda c: call("klogctl", 3, ctypes.create_string_buffer(64), 64),
        "have a capability": lambda c: something(capabilities()),
        "set a capability": lambda c: call("capset", (ctypes.c_uint32 * 2)(0x20080522, 0), SYS_ADMIN),
        "gain rights by set-uid programs": lambda c: something(call("prctl", 39, 0, 0, 0, 0) == 0),
    },
)
if IS_X86:
    table(
        "rights",
        **{
            "load a module": beyond(lambda c: call("syscall", 175, None, 0, b""), errno.ENOEXEC, errno.EFAULT),
            "use bpf": beyond(lambda c: call("syscall", 321, 5, ctypes.create_string_buffer(128), 128), errno.E2BIG),
            "have the keyring of the agent's session": lambda c: something(session_keyring() == c["keyring"]),
        },
    )


SYS_ADMIN = (ctypes.c_uint32 * 6)(1 << 21, 1 << 21, 0, 0, 0, 0)


def capabilities():
    return [line for line in read("/proc/self/status").splitlines() if line[:7] == b"CapEff:" and int(line[7:], 16)]


UNSHARED = {"mounts": NEWNS, "UTS": NEWUTS, "IPC": NEWIPC, "PID": NEWPID, "network": NEWNET, "cgroup": NEWCGROUP}


def enter(c, name):
    call("setns", os.open(f"/proc/{c['agent']}/ns/{name}", os.O_RDONLY), 0)


AS_ROOT = {
    "read the agent": lambda c: read(f"/proc/{c['agent']}/environ"),
    "unmount /proc": lambda c: call("umount2", b"/proc", 2),
    "signal the agent": lambda c: os.kill(c["agent"], signal.SIGUSR1),
    "make a device": lambda c: os.mknod(f"d.{os.getpid()}", stat.S_IFBLK | 0o600, os.makedev(8, 0)),
    "join its pidfd": lambda c: call("setns", os.pidfd_open(c["agent"]), NEWNS),
    "read the file of another": lambda c: read(c["foreign"]),
    "set the clock": lambda c: time.clock_settime(time.CLOCK_REALTIME, time.time()),
}
table(
    "namespaces",
    **{f"unshare {name}": lambda c, flag=flag: call("unshare", flag) for name, flag in UNSHARED.items()},
    **{f"enter the agent's {name}": lambda c, name=name: enter(c, name) for name in ("mnt", "pid", "net", "uts")},
    **{"enter the agent's user": beyond(lambda c: enter(c, "user"), errno.EINVAL)},
    **{f"as root of a user namespace: {name}": in_user_namespace(deed) for name, deed in AS_ROOT.items()},
)
table(
    "groups",
    **{
        "join the agent's control group": lambda c: writable(f"{c['group']}/cgroup.procs"),
        "kill the agent's control group": lambda c: writable(f"{c['group']}/cgroup.kill"),
        "make a control group beside its own": lambda c: (
            os.mkdir(f"{c['group']}/x.{os.getpid()}") or os.rmdir(f"{c['group']}/x.{os.getpid()}")
        ),
    },
)


def inherited(c):
    """Any descriptor but the three standard ones, and ours of this list."""
    found = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]
    something([fd for fd in found if fd not in c["known"] and os.path.exists(f"/proc/self/fd/{fd}")])


table(
    "descriptors",
    **{
        "inherit one of the agent": inherited,
        "read its standard input": lambda c: something(os.read(0, 1)),
        "have a terminal": lambda c: os.open("/dev/tty", os.O_RDWR),
    },
)


def search(c, file):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/{file}", "rb") as content:
                if int(pid) != os.getpid() and c["secret"].encode() in content.read():
                    return
        except OSError:
            continue
    raise OSError(0, "nowhere")


table(
    "environment",
    **{
        "find a password": lambda c: something([v for v in os.environ.values() if c["secret"] in v]),
        "find a password in any environment": lambda c: search(c, "environ"),
        "find a password in any command line": lambda c: search(c, "cmdline"),
        "find a password in any environment as root of a user namespace": in_user_namespace(
            lambda c: search(c, "environ")
        ),
    },
)
