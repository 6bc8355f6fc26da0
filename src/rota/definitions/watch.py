"""Files and folders of definitions that are looked at again and again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

from rota.definitions.folder import ENDINGS, load, passed_over
from rota.definitions.loaded import Loaded
from rota.errors import Problem
from rota.model.job import Definition

Mark = tuple[str, int, int, int]
"""A file as a look from outside sees it: path, time of its last change, size, inode."""


class Watched:
    """One or more places, loaded as one. `today` is asked at every load."""

    def __init__(self, paths: Sequence[str | Path], today: Callable[[], date]) -> None:
        self._paths = tuple({os.path.realpath(path): Path(path) for path in paths}.values())
        self._today = today

    def fingerprint(self) -> tuple[Mark, ...]:
        """A value that differs when a file was added, removed, renamed or written."""
        return tuple(sorted(mark for path in self._paths for mark in _marks(path)))

    async def load(self) -> Loaded:
        """All definitions, and what is wrong with the rest; a name that two places define is left out of both."""
        today = self._today()
        return _joined([(path, await load(path, today=today)) for path in self._paths])


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


def _joined(places: Sequence[tuple[Path, Loaded]]) -> Loaded:
    homes: dict[tuple[str, ...], list[tuple[Path, Definition]]] = {}
    for path, loaded in places:
        for definition in loaded.definitions:
            homes.setdefault(tuple(part.lower() for part in definition.full_name), []).append((path, definition))
    clashes = [
        Problem(f"jobs.{definition.name}", f"is defined in {several[0][0]} too", str(path))
        for several in homes.values()
        for path, definition in several[1:]
    ]
    kept = tuple(several[0][1] for several in homes.values() if len(several) == 1)
    problems = (*(problem for _, loaded in places for problem in loaded.problems), *clashes)
    return Loaded(kept, problems).with_apps([loaded for _, loaded in places])
