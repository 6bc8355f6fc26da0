"""The state folder: records in it decide which processes a sweep kills, so nobody else may have written them.

It belongs to the user of the agent, is open to nobody else, and is no link. A folder that is not like that is refused,
never repaired: what lies in it may already be forged.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rota.errors import InvalidInput

_FIELD = "executor.state_path"
_OTHER = "set executor.state_path to a folder of this user alone"


def prepare(path: Path) -> Path:
    """Make the folder if it is not there; raise `InvalidInput` if it cannot be trusted or made."""
    if not exists(path):
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput.of(_FIELD, f"cannot make {path}: {error.strerror}; {_OTHER}") from None
        exists(path)  # somebody may have been quicker
    return path


def exists(path: Path) -> bool:
    """Whether the folder is there; raises `InvalidInput` if something else is, or if others could write in it."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise InvalidInput.of(_FIELD, f"cannot look at {path}: {error.strerror}; {_OTHER}") from None
    if why := _distrust(path, found):
        raise InvalidInput.of(_FIELD, why)
    return True


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Raise `InvalidInput` if what is done in the folder fails: it is full, for example, or read-only."""
    try:
        yield
    except OSError as error:
        why = f"{path} cannot be written to: {error.strerror or error}"
        raise InvalidInput.of(_FIELD, f"{why}; make room there, or {_OTHER}") from error


def read_own(path: Path) -> bytes:
    """The content of a file that we wrote; OSError if it is a link, or not ours."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(f"{path} was written by another user")
        return file.read()


def _distrust(path: Path, found: os.stat_result) -> str:
    """Why it cannot be trusted, and what to do."""
    if stat.S_ISLNK(found.st_mode):
        return f"{path} is a symbolic link; name the folder that it leads to, or {_OTHER}"
    if not stat.S_ISDIR(found.st_mode):
        return f"{path} is not a folder; remove it, or {_OTHER}"
    if found.st_uid != os.geteuid():
        whose = f"belongs to {_name(found.st_uid)}, not to {_name(os.geteuid())}"
        return f"{path} {whose}, so what is in it is not believed; remove it, or {_OTHER}"
    if mode := stat.S_IMODE(found.st_mode) & 0o077:
        open_to = f"is open to others (mode {stat.S_IMODE(found.st_mode):o})"
        told = "others could have written in it" if mode & 0o022 else "it tells what runs here"
        return f"{path} {open_to}, and {told}; empty it and chmod 700 {path}, or {_OTHER}"
    return ""


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return f"user {uid}"
