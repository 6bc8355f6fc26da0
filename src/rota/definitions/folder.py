"""Load jobs from files and folders, and watch these for changes, by polling. One broken file does not stop the others.

Disks may hang: files are read in threads of their own, which do not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rota.definitions.characters import SIZE_MAX
from rota.definitions.collect import TIMEOUT_S, collect
from rota.definitions.loaded import Loaded, joined
from rota.definitions.report import one_line
from rota.definitions.yaml import read_yaml
from rota.errors import InvalidInput, Problem
from rota.model.job import SOURCE_MAX, file_source

FILES_MAX = 10_000
YAML_ENDINGS = (".yaml", ".yml")
ENDINGS = (*YAML_ENDINGS, ".py")
AT_A_TIME = 2
PATIENCE_S = 5.0
"""How long a node waits for one file among others."""

T = TypeVar("T")
Mark = tuple[str, int, int, int]
"""A file as a look from outside sees it: path, time of its last change, size, inode."""


async def load_by(path: Path, read: Callable[[Path, bool], Awaitable[Loaded]], timeout_s: float = TIMEOUT_S) -> Loaded:
    """Find the files of a place, one or those of a folder and the folders in it, and have each of them read, a few at a
    time, in the order of their names; `read` is told whether it is the only one."""
    try:
        async with asyncio.timeout(timeout_s):
            files, problems = await in_thread(lambda: _find(path))
    except TimeoutError:
        return Loaded((), (problem(path, f"could not be looked at within {timeout_s:g} s"),))
    turns = asyncio.Semaphore(AT_A_TIME)

    async def read_one(file: Path) -> Loaded:
        async with turns:
            return await read(file, len(files) == 1)

    found = await asyncio.gather(*(read_one(file) for file in files))
    return joined([(_name(file), loaded) for file, loaded in zip(files, found, strict=True)], problems)


async def load_file(file: Path, today: date, timeout_s: float = TIMEOUT_S) -> Loaded:
    if file.suffix.lower() not in YAML_ENDINGS:
        return _shown(await collect(file, today=today, timeout_s=timeout_s))
    try:
        async with asyncio.timeout(timeout_s):
            text = await in_thread(lambda: read_plain(file, SIZE_MAX + 1))
            return Loaded(await in_thread(lambda: read_yaml(text, file=_name(file), today=today)), ())
    except TimeoutError:
        return Loaded((), (problem(file, f"could not be read within {timeout_s:g} s"),))
    except InvalidInput as error:
        return Loaded((), error.problems)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}" if error.errno else str(error.strerror)
        return Loaded((), (problem(file, reason),))


def _find(path: Path) -> tuple[list[Path], list[Problem]]:
    if path.is_dir():
        return _find_in_folder(path)
    if not path.exists():
        return [], [problem(path, "there is no such file or folder")]
    refusal = _refusal(path)
    return ([path], []) if refusal is None else ([], [problem(path, refusal)])


def _find_in_folder(root: Path) -> tuple[list[Path], list[Problem]]:
    files: dict[Path, Path] = {}
    problems: list[Problem] = []
    home = root.resolve()
    for path in _walk(root, problems):
        target = path.resolve()
        refusal = _refusal(path) if target.is_relative_to(home) else "is a link that leaves the folder"
        if refusal is not None:
            problems.append(problem(path, refusal))
        elif len(files) == FILES_MAX:
            problems.append(problem(root, f"has more than {FILES_MAX} files; the rest was not read"))
            break
        else:
            files.setdefault(target, path)  # a link to a file beside it is the same file
    return list(files.values()), problems


def _walk(root: Path, problems: list[Problem]) -> Iterator[Path]:
    """All that may be meant, sorted. Links to folders are only looked at to refuse those that lead elsewhere."""

    def unreadable(error: OSError) -> None:
        problems.append(problem(Path(error.filename), f"cannot be read: {error.strerror}"))

    for folder, folders, names in os.walk(root, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not passed_over(name))
        here = Path(folder)
        home = root.resolve()
        yield from (here / name for name in folders if not (here / name).resolve().is_relative_to(home))
        yield from (here / name for name in sorted(names) if name.endswith(ENDINGS) and not passed_over(name))


def passed_over(name: str) -> bool:
    """True for hidden files, helpers, caches and left-overs of editors."""
    return name.startswith((".", "_", "#", "~"))


def _refusal(path: Path) -> str | None:
    if path.suffix.lower() not in ENDINGS:
        return f"is not a file with jobs; their names end in {', '.join(ENDINGS)}"
    if not path.is_file():
        return "is not a regular file"
    if path.stat().st_size > SIZE_MAX:
        return f"is larger than {SIZE_MAX // 1024} KiB"
    return None


def _shown(loaded: Loaded) -> Loaded:
    return loaded._replace(problems=tuple(each._replace(file=one_line(each.file or "")) for each in loaded.problems))


def problem(path: Path, reason: str) -> Problem:
    return Problem("", reason, _name(path))


def _name(path: Path) -> str:
    return one_line(str(path), length=1000)


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a daemon thread of its own. If it hangs, the process can still end, and no pool loses a thread."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(tell_it: Callable[[Any], None], what: object) -> None:
        def now() -> None:
            if not done.done():
                tell_it(what)

        if not loop.is_closed():
            loop.call_soon_threadsafe(now)

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            tell(done.set_exception, error)
        else:
            tell(done.set_result, result)

    threading.Thread(target=run, name="rota-definitions", daemon=True).start()
    return await done


def read_plain(file: Path, limit: int) -> bytes:
    """The beginning of a regular file. Raises OSError, and for everything else than a file too."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "is not a regular file")
        return stream.read(limit)


class _Reading(NamedTuple):
    """A file that is being read, and its fingerprint when the read began."""

    mark: tuple[Mark, ...]
    task: asyncio.Task[Loaded]


class Watched:
    """One or more places, loaded as one. `today` is asked at every load. `repository` is the one that the files are of.

    With `patience_s`, a load does not wait for longer than that for one file among others: it goes on without it, and
    the fingerprint changes when the file was read after all. What a file was before is in force meanwhile.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        today: Callable[[], date],
        *,
        repository: str = "",
        patience_s: float | None = None,
    ) -> None:
        self._paths = tuple({os.path.realpath(path): Path(path) for path in paths}.values())
        self._sources = tuple(_source(path, repository) for path in self._paths)
        self._today = today
        self._patience_s = patience_s
        self._loaded: tuple[str, ...] = ()
        self._read: dict[Path, Loaded] = {}
        self._reading: dict[Path, _Reading] = {}
        self._late: frozenset[Path] = frozenset()
        self._looking: asyncio.Task[tuple[Mark, ...]] | None = None
        self._seen: tuple[Mark, ...] = ()

    async def fingerprint(self) -> object:
        """A value that differs when a file was added, removed, renamed or written, or a module that one has loaded, or
        when a file was read that took long. A disk that does not answer is as it was."""
        if self._looking is None:
            self._looking = asyncio.ensure_future(in_thread(self._look))
        await asyncio.wait({self._looking}, timeout=self._patience_s)
        if self._looking.done():
            self._seen, self._looking = self._looking.result(), None
        return self._seen, frozenset(file for file in self._late if not self._is_ready(file))

    async def load(self) -> Loaded:
        """All definitions, and what is wrong with the rest; a name that two places define is left out of both."""
        today, several = self._today(), len(self._paths) > 1
        late: set[Path] = set()

        async def read(file: Path, alone: bool) -> Loaded:
            return await self._one(file, today, late, waits=alone and not several)

        parts = await asyncio.gather(*(load_by(path, read) for path in self._paths))
        self._late = frozenset(late)
        found = zip(self._paths, self._sources, parts, strict=True)
        loaded = joined([(str(path), part.of_source(source)) for path, source, part in found])
        # A broken file does not say which modules it loads, so we go on watching those of its last good version.
        self._loaded = loaded.files if not loaded.problems else tuple({*self._loaded, *loaded.files})
        return loaded

    async def _one(self, file: Path, today: date, late: set[Path], *, waits: bool) -> Loaded:
        known = self._reading.get(file)
        try:
            async with asyncio.timeout(self._patience_s):
                mark = await in_thread(lambda: tuple(_mark(file)))
        except TimeoutError:
            mark = () if known is None else known.mark
        if known is not None and known.mark != mark:
            known.task.cancel()
            known = None
        if known is None:
            reading = self._reading[file] = _Reading(mark, asyncio.ensure_future(load_file(file, today)))
            await asyncio.wait({reading.task}, timeout=None if waits else self._patience_s)
        if self._is_ready(file):
            self._read[file] = self._reading.pop(file).task.result()
            return self._read[file]
        late.add(file)
        reason = f"is still being read after {self._patience_s or 0:g} s; the others do not wait for it"
        return self._read.get(file) or Loaded((), (problem(file, reason),))

    def _is_ready(self, file: Path) -> bool:
        return file in self._reading and self._reading[file].task.done()

    def _look(self) -> tuple[Mark, ...]:
        found = {mark for path in self._paths for mark in _marks(path)}
        return tuple(sorted(found.union(mark for file in self._loaded for mark in _mark(Path(file)))))


def _source(path: Path, repository: str) -> str:
    """How the jobs of a file or folder name where they come from: by its path from here, if it lies below. Links are
    not followed: where they lead changes with every deployment."""
    whole, here = Path(os.path.normpath(path.absolute())), Path().absolute()
    name = str(whole.relative_to(here)) if whole != here and whole.is_relative_to(here) else str(whole)
    return file_source(one_line(name, length=SOURCE_MAX), repository)


def _marks(path: Path) -> Iterator[Mark]:
    if path.is_file():
        yield from _mark(path)
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not passed_over(name)]
        for name in names:
            if name.endswith(ENDINGS) and not passed_over(name):
                yield from _mark(Path(folder, name))


def _mark(path: Path) -> Iterator[Mark]:
    try:
        found = path.stat()
    except OSError:
        return
    yield str(path), found.st_mtime_ns, found.st_size, found.st_ino
