"""Load jobs from a file or a folder. One broken file does not stop the others.

Disks may hang: files are read in threads of their own, which do not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from rota.definitions.characters import SIZE_MAX
from rota.definitions.collect import TIMEOUT_S, collect
from rota.definitions.display import one_line
from rota.definitions.loaded import Loaded, joined
from rota.definitions.yaml import read_yaml
from rota.errors import InvalidInput, Problem
from rota.model.job import Definition

FILES_MAX = 10_000
YAML_ENDINGS = (".yaml", ".yml")
ENDINGS = (*YAML_ENDINGS, ".py")
AT_A_TIME = 2
T = TypeVar("T")


async def load(path: str | Path, *, today: date, timeout_s: float = TIMEOUT_S) -> Loaded:
    """Load one file, or all of a folder and the folders in it, in the order of their names.

    In a folder, names that begin with `.` or `_` and files of other kinds are passed over.
    """
    return await load_by(Path(path), lambda file, _: load_file(file, today, timeout_s), timeout_s)


async def load_by(path: Path, read: Callable[[Path, bool], Awaitable[Loaded]], timeout_s: float = TIMEOUT_S) -> Loaded:
    """Find the files of a place and have each of them read, a few at a time; `read` is told whether it is the only
    one."""
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
    """Load one file, in bounded time."""
    if file.suffix.lower() not in YAML_ENDINGS:
        return _shown(await collect(file, today=today, timeout_s=timeout_s))
    try:
        async with asyncio.timeout(timeout_s):
            return Loaded(await in_thread(lambda: _read_yaml_file(file, today)), ())
    except TimeoutError:
        return Loaded((), (problem(file, f"could not be read within {timeout_s:g} s"),))
    except InvalidInput as error:
        return Loaded((), error.problems)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}" if error.errno else str(error.strerror)
        return Loaded((), (problem(file, reason),))


def _read_yaml_file(file: Path, today: date) -> tuple[Definition, ...]:
    return read_yaml(read_plain(file, SIZE_MAX + 1), file=_name(file), today=today)


def _find(path: Path) -> tuple[list[Path], list[Problem]]:
    """Return the files to load, and the problems of others."""
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
