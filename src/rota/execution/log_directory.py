"""The output of attempts in a directory, local or shared: one file for each attempt that printed anything.

    <root>/<run // 1000>/<run>/<item>.<attempt>.log      the bytes, exactly as they were printed
                               <item>.<attempt>.end      how many there were in all; blank until that is known

Names are made of numbers only, links are not followed. Writing the same chunk twice changes nothing. The second file is
made with the first: on a disk that is full by the end there would be no room for it, and a log without its end looks as
if its host had died.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from rota.errors import LogGap, LogUnreadable
from rota.model.run import LogKey
from rota.ports import LogStore

RUNS_PER_FOLDER = 1000
CUT = b"\n[rota: the host ended before it had written the rest of this output; about the last 2 s of it are missing]\n"
MISSING = b"\n[rota: %d bytes of this output are missing here: they could not be kept]\n"
_BLANK = b" " * 32
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class LogState(StrEnum):
    """What is to be expected after the last byte."""

    RUNNING = "running"
    ENDED = "ended"
    CUT = "cut"


class Piece(NamedTuple):
    """What a reader gets: bytes, where to go on, and what is to be expected there."""

    data: bytes
    next: int
    state: LogState


class DirectoryLogs:
    """Logs as files below a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def append(self, key: LogKey, offset: int, data: bytes) -> None:
        path = self._path(key, "log")
        try:
            file = os.open(path, _WRITE, 0o640)
        except FileNotFoundError:
            self._make_folder(path.parent)
            file = os.open(path, _WRITE, 0o640)
        try:
            _write(file, offset, data)
        finally:
            os.close(file)
        if not offset:
            with suppress(OSError):  # then there may be no end; the output counts for more
                self._write_end(key, _BLANK)

    def read(self, key: LogKey, offset: int, limit: int) -> bytes:
        return self._read(self._path(key, "log"), offset, limit)

    def close_log(self, key: LogKey, total: int) -> None:
        with suppress(FileNotFoundError):  # nothing was printed, or the run was pruned meanwhile
            self._write_end(key, b"%*d\n" % (len(_BLANK) - 1, total))

    def _write_end(self, key: LogKey, text: bytes) -> None:
        """Always of the same length: what is written over needs no more room on the disk."""
        file = os.open(self._path(key, "end"), _WRITE, 0o640)
        try:
            os.pwrite(file, text, 0)
        finally:
            os.close(file)

    def total(self, key: LogKey) -> int | None:
        text = self._read(self._path(key, "end"), 0, 32)
        return int(text) if text.endswith(b"\n") and text.strip().isdigit() else None

    def runs(self, after_id: int, limit: int) -> list[int]:
        found: list[int] = []
        for shelf in _numbers(self._root):
            if shelf >= after_id // RUNS_PER_FOLDER and len(found) < limit:
                found += [it for it in _numbers(self._root / str(shelf)) if it > after_id]
        return found[:limit]

    def prune(self, run_ids: Sequence[int]) -> None:
        for run_id in run_ids:
            folder = self._folder(run_id)
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # others are in it
                folder.parent.rmdir()

    def _make_folder(self, folder: Path) -> None:
        """One by one: the mode counts only for the last that is made."""
        for each in (self._root, folder.parent, folder):
            each.mkdir(parents=True, exist_ok=True, mode=0o750)

    def _folder(self, run_id: int) -> Path:
        return self._root / f"{int(run_id) // RUNS_PER_FOLDER:d}" / f"{int(run_id):d}"

    def _path(self, key: LogKey, ending: str) -> Path:
        return self._folder(key.run_id) / f"{int(key.item_id):d}.{int(key.attempt):d}.{ending}"

    def _read(self, path: Path, offset: int, limit: int) -> bytes:
        try:
            file = os.open(path, _READ)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            raise LogUnreadable(f"{path} cannot be read: {error.strerror}") from error
        try:
            return os.pread(file, limit, offset) if stat.S_ISREG(os.fstat(file).st_mode) else b""
        finally:
            os.close(file)


def _numbers(folder: Path) -> list[int]:
    """The folders in a folder that are named by numbers, as we write them."""
    try:
        with os.scandir(folder) as found:
            names = [it.name for it in found if it.is_dir(follow_symlinks=False)]
    except OSError:  # there is no output yet, or nobody may read it
        return []
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal() and name == str(int(name)))


def _write(file: int, offset: int, data: bytes) -> None:
    """Write all of it or nothing. What is not there is not made up: a file that lost its beginning gets no hole."""
    size = os.fstat(file).st_size
    if size < offset:
        raise LogGap(size)
    view, at = memoryview(data), offset
    try:
        while view:
            written = os.pwrite(file, view, at)
            view, at = view[written:], at + written
    except OSError:
        if size == offset:
            os.ftruncate(file, size)
        raise


def piece(logs: LogStore, key: LogKey, offset: int, limit: int, *, over: bool) -> Piece:
    """Read on from `offset`. `over`: whether the store says that the attempt has ended.

    The length is asked for before the bytes, so that an end that comes in between is not taken for a gap.
    """
    total = logs.total(key)
    data = logs.read(key, offset, limit)
    at = offset + len(data)
    if data or (total is None and not over):
        return Piece(data, at, LogState.ENDED if total is not None and at >= total else LogState.RUNNING)
    if total is None and at == 0:
        return Piece(b"", at, LogState.ENDED)  # it printed nothing
    if total is not None and at >= total:
        return Piece(b"", at, LogState.ENDED)
    return Piece(CUT if total is None else MISSING % (total - at), at, LogState.CUT)
