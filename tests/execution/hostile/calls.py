"""Calls of Linux for hostile programs. A deed that works returns; one that is refused raises OSError.

A deed that works must do no harm to the host: some day a task will have a right that it should not have, and then the
tests run with it. So mounts, clocks and names stay as they are: `beyond` shows that they could have been changed.
"""

# ruff: noqa: PTH123

import ctypes
import os

FAMILIES = {}
"""By family and name: a function of the context, which says who holds the program, and where their files are."""
libc = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWCGROUP = (
    0x20000,
    0x4000000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
    0x2000000,
)
IS_X86 = os.uname().machine == "x86_64"
"""Where the numbers of older system calls are known; those from 400 on are the same everywhere."""


def table(family, **deeds):
    FAMILIES.setdefault(family, {}).update(deeds)


def call(function, *arguments):
    """A call of libc that sets errno."""
    result = getattr(libc, function)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def beyond(deed, *errors):
    """One of these errors comes after the check of rights: who gets it could have done it."""

    def inner(c):
        try:
            return deed(c)
        except OSError as error:
            if error.errno not in errors:
                raise

    return inner


def read(path):
    with open(path, "rb") as file:
        return file.read(4096)


def writable(path):
    os.close(os.open(path, os.O_WRONLY))


def something(found):
    """What was looked for, if there is any."""
    if not found:
        raise OSError(0, "nothing")
    return found


def in_user_namespace(deed):
    """Do it with all capabilities of a user namespace of one's own."""

    def inner(c):
        uid, gid = os.getuid(), os.getgid()
        call("unshare", NEWUSER | NEWNS)
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        return deed(c)

    return inner


def session_keyring():
    return call("syscall", 250, 0, -3, 0) if IS_X86 else 0
