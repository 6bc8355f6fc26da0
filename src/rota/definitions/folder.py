"""Load jobs from a file or a folder. One broken file does not stop the others."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from rota.definitions.collect import TIMEOUT_S, collect
from rota.definitions.document import read_yaml
from rota.definitions.loaded import Loaded
from rota.definitions.text import SIZE_MAX
from rota.definitions.words import one_line
from rota.errors import InvalidInput, Problem
from rota.model.job import Definition

FILES_MAX = 10_000
YAML_ENDINGS = (".yaml", ".yml")
ENDINGS = (*YAML_ENDINGS, ".py")
AT_A_TIME = 2


async def load(path: str | Path, *, today: date, timeout_s: float = TIMEOUT_S) -> Loaded:
    """Load one file, or all of a folder and the folders in it, in the order of their names.

    In a folder, names that begin with `.` or `_` and files of other kinds are passed over.
    """
    path = Path(path)
    files, problems = await asyncio.to_thread(_find, path)
    turns = asyncio.Semaphore(AT_A_TIME)

    async def load_one(file: Path) -> Loaded:
        async with turns:
            return await _load_file(file, today, timeout_s)

    found = await asyncio.gather(*(load_one(file) for file in files))
    pairs = [(file, one) for file, loaded in zip(files, found, strict=True) for one in loaded.definitions]
    definitions, clashes = _without_clashes(pairs)
    all_problems = (*problems, *(each for loaded in found for each in loaded.problems), *clashes)
    return Loaded(definitions, all_problems).with_apps(found)


async def _load_file(file: Path, today: date, timeout_s: float) -> Loaded:
    if file.suffix.lower() not in YAML_ENDINGS:
        return _shown(await collect(file, today=today, timeout_s=timeout_s))
    try:
        return Loaded(await asyncio.to_thread(_read_yaml_file, file, today), ())
    except InvalidInput as error:
        return Loaded((), error.problems)
    except OSError as error:
        return Loaded((), (_problem(file, f"cannot be read: {error.strerror}"),))


def _read_yaml_file(file: Path, today: date) -> tuple[Definition, ...]:
    with file.open("rb") as stream:
        return read_yaml(stream.read(SIZE_MAX + 1), file=_name(file), today=today)


def _find(path: Path) -> tuple[list[Path], list[Problem]]:
    """The files to load, and what is wrong with others."""
    if path.is_dir():
        return _find_in_folder(path)
    if not path.exists():
        return [], [_problem(path, "there is no such file or folder")]
    refusal = _refusal(path)
    return ([path], []) if refusal is None else ([], [_problem(path, refusal)])


def _find_in_folder(root: Path) -> tuple[list[Path], list[Problem]]:
    files: dict[Path, Path] = {}
    problems: list[Problem] = []
    home = root.resolve()
    for path in _walk(root, problems):
        target = path.resolve()
        refusal = _refusal(path) if target.is_relative_to(home) else "is a link that leaves the folder"
        if refusal is not None:
            problems.append(_problem(path, refusal))
        elif len(files) == FILES_MAX:
            problems.append(_problem(root, f"has more than {FILES_MAX} files; the rest was not read"))
            break
        else:
            files.setdefault(target, path)  # a link to a file beside it is the same file
    return list(files.values()), problems


def _walk(root: Path, problems: list[Problem]) -> Iterator[Path]:
    """All that may be meant, sorted. Links to folders are only looked at to refuse those that lead elsewhere."""

    def unreadable(error: OSError) -> None:
        problems.append(_problem(Path(error.filename), f"cannot be read: {error.strerror}"))

    for folder, folders, names in os.walk(root, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not passed_over(name))
        here = Path(folder)
        home = root.resolve()
        yield from (here / name for name in folders if not (here / name).resolve().is_relative_to(home))
        yield from (here / name for name in sorted(names) if name.endswith(ENDINGS) and not passed_over(name))


def passed_over(name: str) -> bool:
    """Hidden files, helpers, caches and what editors leave behind."""
    return name.startswith((".", "_", "#", "~"))


def _refusal(path: Path) -> str | None:
    if path.suffix.lower() not in ENDINGS:
        return f"is not a file with jobs; their names end in {', '.join(ENDINGS)}"
    if not path.is_file():
        return "is not a regular file"
    if path.stat().st_size > SIZE_MAX:
        return f"is larger than {SIZE_MAX // 1024} KiB"
    return None


def _without_clashes(found: list[tuple[Path, Definition]]) -> tuple[tuple[Definition, ...], list[Problem]]:
    """Leave out jobs of the same name: nobody can say which of them is meant."""
    by_name: dict[tuple[str, ...], list[tuple[Path, Definition]]] = {}
    for file, definition in found:
        by_name.setdefault(tuple(part.lower() for part in definition.full_name), []).append((file, definition))
    problems = [
        Problem(f"jobs.{definition.name}", f"is defined in {_name(several[0][0])} too", _name(file))
        for several in by_name.values()
        for file, definition in several[1:]
    ]
    return tuple(several[0][1] for several in by_name.values() if len(several) == 1), problems


def _shown(loaded: Loaded) -> Loaded:
    return loaded._replace(problems=tuple(each._replace(file=one_line(each.file or "")) for each in loaded.problems))


def _problem(path: Path, reason: str) -> Problem:
    return Problem("", reason, _name(path))


def _name(path: Path) -> str:
    return one_line(str(path), length=1000)
