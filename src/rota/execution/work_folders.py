"""Folders for the processes of attempts: new, empty, owned by the task's user, removed when the processes are gone.

TEMPORARY/rota-work-XXXX/       of one agent, which holds a lock on it; everybody may pass, nobody may list
    NAME/                       of one attempt or worker

A task may move folders of others into its own. An agent of root could empty them, but the task could not: so only
folders that belong to the owner of NAME/ are entered. Whatever else is there stays, and the log says so.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rota.errors import InvalidInput
from rota.execution.users import user_entry
from rota.logger import log

_PREFIX = "rota-work-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASSES_MAX = 10_000
"""How often a folder is listed again while it is emptied: whoever keeps adding files must not keep us for ever."""
_PROBE_BYTES = 4096
"""More than any of the files that starting a process needs."""


class WorkFolders:
    """The folders of one agent. Those that dead agents left are removed when it opens, which may take a while."""

    def __init__(self) -> None:
        """Raises `InvalidInput` if no folder can be made."""
        try:
            self._own, self._lock = _new_folder()
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            why = f"the folders of tasks cannot be made: {where}{error.strerror or error}"
            raise InvalidInput.of("TMPDIR", f"{why}; make room there, or set TMPDIR to another folder") from error
        self._count = 0
        self._removals: set[asyncio.Future[None]] = set()

    @property
    def root(self) -> Path:
        return self._own

    def make(self, user: str | None, *inner: str) -> Path:
        """A new folder of that user, with such folders in it."""
        self._count += 1
        folder = self._own / str(self._count)
        folder.mkdir(mode=0o700)
        for name in inner:
            (folder / name).mkdir(mode=0o700)
            _give(folder / name, user)
        _give(folder, user)  # last: from then on, another task of that user may put links in the place of what is in it
        return folder

    def remove(self, folder: Path) -> None:
        """Remove it, whatever is in it, without waiting for that."""
        try:
            folder.rmdir()
        except OSError:
            removal = asyncio.get_running_loop().run_in_executor(None, remove_tree, folder)
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)

    async def close(self) -> None:
        """Remove all of them, in a thread: a task may have left a million files."""
        await asyncio.gather(*self._removals)
        await asyncio.to_thread(_remove_all, self._own)
        os.close(self._lock)


def unwritable(folders: Iterable[Path]) -> str:
    """Return why one of these folders refuses a small file; nothing if all of them take one."""
    for folder in folders:
        probe = folder / f".probe-{os.getpid()}"
        try:
            try:
                probe.write_bytes(b"x" * _PROBE_BYTES)
            finally:
                probe.unlink(missing_ok=True)
        except OSError as error:
            return f"{folder} cannot be written to: {error.strerror}"
    return ""


def _new_folder() -> tuple[Path, int]:
    """The folder of an agent, and the lock on it."""
    place = Path(tempfile.gettempdir())
    _remove_left(place)
    # Under a name that nobody looks for until it is locked: a folder without a lock is one that was left.
    unlocked = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
    lock = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    own = unlocked.rename(place / unlocked.name.removeprefix("."))
    own.chmod(0o711)
    return own, lock


def _give(folder: Path, user: str | None) -> None:
    """Let it be of that user; if there is no such user, the boundary will say so."""
    if user is not None and os.geteuid() == 0 and (found := user_entry(user)) is not None:
        os.chown(folder, found.pw_uid, found.pw_gid, follow_symlinks=False)


def _remove_left(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            descriptor = os.open(folder, _FOLDER)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove_all(folder)
            finally:
                os.close(descriptor)


def _remove_all(own: Path) -> None:
    """Remove the folder of an agent. Each NAME/ in it has an owner of its own."""
    with suppress(OSError):
        for path in own.iterdir():
            try:
                path.unlink()
            except OSError:
                remove_tree(path)
        own.rmdir()


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that its owner could remove.

    A stranger filled it, and may change it meanwhile: no link is followed, and three descriptors are enough for any
    depth, because folders are moved up before they are emptied.
    """
    with suppress(OSError):
        with _opened(str(folder), None) as top:
            _empty(top, os.fstat(top).st_uid)
        folder.rmdir()
    if folder.exists():
        log.warning("work_folder.kept", folder=str(folder), why="not all that is in it belongs to its user")


def _empty(top: int, owner: int) -> None:
    free = (f".rota-{number}" for number in itertools.count())
    for _ in range(_PASSES_MAX):
        if not sum([_remove(top, name, owner, free) for name in os.listdir(top)]):
            return


def _remove(top: int, name: str, owner: int, free: Iterator[str]) -> bool:
    """Remove a file, or a folder after what was in it has moved to the top; whether anything came of it."""
    if _is_removed(name, top):
        return True
    moved = 0
    with suppress(OSError):
        with _opened(name, top, owner) as inner:
            names = os.listdir(inner)  # noqa: PTH208 - it is a descriptor
            moved = sum([_move_up(inner, each, top, owner, next(free)) for each in names])
        os.rmdir(name, dir_fd=top)
        return True
    return moved > 0


def _move_up(inner: int, name: str, top: int, owner: int, free: str) -> bool:
    if _is_removed(name, inner):
        return True
    with suppress(OSError):
        with _opened(name, inner, owner):  # to move a folder is to write in it
            os.rename(name, free, src_dir_fd=inner, dst_dir_fd=top)
        return True
    return False


def _is_removed(name: str, where: int) -> bool:
    """Remove a file or an empty folder. Whoever owns the folder that it is in may do that, whosever it is."""
    for remove in (os.unlink, os.rmdir):
        with suppress(OSError):
            remove(name, dir_fd=where)
            return True
    return False


@contextmanager
def _opened(name: str, where: int | None, owner: int | None = None) -> Iterator[int]:
    """A folder of that name there, opened also if its owner has closed it; never what a link leads to, nor a folder of
    anybody but `owner`."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=where)
    except PermissionError:  # not of root, who needs no permission
        with suppress(ValueError):  # it has become a link
            os.chmod(name, 0o700, dir_fd=where, follow_symlinks=False)
        folder = os.open(name, _FOLDER, dir_fd=where)
    try:
        if owner is not None and os.fstat(folder).st_uid != owner:
            raise PermissionError(f"{name} belongs to another user")
        os.fchmod(folder, 0o700)
        yield folder
    finally:
        os.close(folder)
