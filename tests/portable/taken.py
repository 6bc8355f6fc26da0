"""Be a Python of macOS, as far as that shows from here: `python taken.py EXECUTABLE [-m MODULE | -c CODE | FILE] ...`.

What the standard library does not have there is taken away before anything else is loaded, the name of the system is
changed, and every Python that this process starts is EXECUTABLE, which does the same to it.
"""

# ruff: noqa: E402
import select

for name in [name for name in dir(select) if name.lower().startswith("epoll")]:
    delattr(select, name)  # before `socket` loads `selectors`, which looks for it

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import runpy
import signal
import socket
import sys
import sysconfig
import time
import types

TAKEN = {
    os: """
        copy_file_range eventfd eventfd_read eventfd_write fdatasync getrandom getresgid getresuid getxattr listxattr
        memfd_create pidfd_open pipe2 posix_fadvise posix_fallocate removexattr sched_get_priority_max
        sched_get_priority_min sched_getaffinity sched_getparam sched_getscheduler sched_rr_get_interval
        sched_setaffinity sched_setparam sched_setscheduler setns setresgid setresuid setxattr splice unshare waitid
        CLD_EXITED EFD_CLOEXEC EFD_NONBLOCK EFD_SEMAPHORE GRND_NONBLOCK MFD_ALLOW_SEALING MFD_CLOEXEC O_DIRECT
        O_LARGEFILE O_NOATIME O_PATH O_RSYNC O_TMPFILE P_ALL P_PGID P_PID P_PIDFD WEXITED WNOWAIT WSTOPPED
    """,
    time: "CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid",
    signal: """
        SIGCLD SIGPOLL SIGPWR SIGRTMAX SIGRTMIN SIGSTKFLT pidfd_send_signal sigtimedwait sigwaitinfo
    """,
    resource: "prlimit RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_OFILE RLIMIT_RTPRIO RLIMIT_RTTIME RLIMIT_SIGPENDING",
    fcntl: "F_ADD_SEALS F_GETPIPE_SZ F_GET_SEALS F_NOTIFY F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW F_SETLEASE F_SETPIPE_SZ",
    mmap: "MAP_DENYWRITE MAP_EXECUTABLE MAP_POPULATE MAP_STACK",
    socket: """
        AF_NETLINK AF_PACKET AF_VSOCK MSG_CMSG_CLOEXEC MSG_CONFIRM MSG_ERRQUEUE MSG_MORE MSG_NOSIGNAL SCM_CREDENTIALS
        SOCK_CLOEXEC SOCK_NONBLOCK SOCK_SEQPACKET SO_BINDTODEVICE SO_DOMAIN SO_MARK SO_PASSCRED SO_PASSSEC SO_PEERCRED
        SO_PEERSEC SO_PRIORITY SO_PROTOCOL TCP_CONGESTION TCP_CORK TCP_DEFER_ACCEPT TCP_INFO TCP_KEEPIDLE TCP_LINGER2
        TCP_QUICKACK TCP_SYNCNT TCP_USER_TIMEOUT TCP_WINDOW_CLAMP
    """,
}
CALLS = {"capset", "mount", "pidfd_open", "prctl", "setns", "syscall", "unshare"}
"""What the C library lacks; `syscall` is there, but its numbers are others."""
BUFFER = 4096
"""The kernel doubles it: macOS begins with 8 KiB for a Unix socket."""


class Library(ctypes.CDLL):
    """The C library, without what is Linux alone."""

    def __getattr__(self, name):  # type: ignore[no-untyped-def]
        if name in CALLS:
            raise AttributeError(f"dlsym(RTLD_DEFAULT, {name}): symbol not found")
        return super().__getattr__(name)


def small_pair(family=socket.AF_UNIX, kind=socket.SOCK_STREAM, *more, _make=socket.socketpair):  # type: ignore[no-untyped-def]
    """As `socket.socketpair` is there: without packets that come in order, and with small buffers."""
    if kind not in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))
    ends = _make(family, kind, *more)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    return ends


def take_away() -> None:
    sysconfig.get_config_vars()  # those of macOS would be looked for with its tools
    for module, names in TAKEN.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    if hasattr(os, "process_cpu_count"):  # from Python 3.13 on, made from what was taken
        os.process_cpu_count = os.cpu_count
    ctypes.CDLL = Library  # type: ignore[misc]
    socket.socketpair = small_pair
    sys.modules["_scproxy"] = types.SimpleNamespace(_get_proxy_settings=dict, _get_proxies=dict)  # type: ignore[assignment]
    sys.platform = "darwin"


def be(arguments: list[str]) -> None:
    """Run what the command line of a Python names."""
    match arguments:
        case ["-m", module, *rest]:
            sys.argv = [module, *rest]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *rest]:
            sys.argv = ["-c", *rest]
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        case [file, *rest]:
            sys.argv = [file, *rest]
            runpy.run_path(file, run_name="__main__")


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # where this file lies
    sys.executable = sys.argv[1]
    take_away()
    be(sys.argv[2:])
