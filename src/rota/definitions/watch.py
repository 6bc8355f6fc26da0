"""Watch files and folders of definitions for changes, by polling."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

from rota.definitions.display import one_line
from rota.definitions.folder import ENDINGS, in_thread, load_by, load_file, passed_over, problem
from rota.definitions.loaded import Loaded, joined
from rota.model.job import SOURCE_MAX, file_source

PATIENCE_S = 5.0
"""How long a node waits for one file among others."""

Mark = tuple[str, int, int, int]
"""A file as a look from outside sees it: path, time of its last change, size, inode."""


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
