"""The result of loading a file or folder: definitions and problems."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rota.errors import Problem
from rota.model.job import Definition


class Loaded(NamedTuple):
    """Definitions that are right, and what is wrong with the others; of apps also what a node can call: handlers and
    listeners by the names under which it advertises them, the file of each, and a digest of the code. It is also what
    the collecting process answers."""

    definitions: tuple[Definition, ...] = ()
    problems: tuple[Problem, ...] = ()
    handlers: tuple[str, ...] = ()
    listeners: tuple[str, ...] = ()
    digest: str = ""
    homes: tuple[tuple[str, str], ...] = ()
    """By advertised name, the file whose app has it."""
    files: tuple[str, ...] = ()
    """The files of apps and of the modules beside them that they have loaded."""
    sources: tuple[tuple[str, str], ...] = ()
    """By a job's full name, its source: `app NAME` if its app has a name, else the path that was asked for."""
    covered: tuple[str, ...] = ()
    """The sources that were read whole, without a problem."""

    def of_source(self, source: str) -> Loaded:
        """Return the same, with this source for each job that has none."""
        own = dict(self.sources)
        names = ("/".join(it.full_name) for it in self.definitions)
        sources = {name: own.get(name, source) for name in names}
        whole = () if self.problems else (source, *self.covered)
        return self._replace(sources=tuple(sources.items()), covered=tuple(dict.fromkeys(whole)))


def joined(parts: Sequence[tuple[str, Loaded]], problems: Iterable[Problem] = ()) -> Loaded:
    """What several places have, as one. What two of them define is left out of both, as nobody can say which is meant;
    the problem names both. So it is with what can be called: an item never comes to the wrong app."""
    definitions, twins = _without_twins(parts)
    homes: dict[str, list[str]] = {}
    for _, loaded in parts:
        for name, file in loaded.homes:
            homes.setdefault(name, []).append(file)
    single = {name: files[0] for name, files in homes.items() if len(set(files)) == 1}
    listeners = tuple(dict.fromkeys(name for _, loaded in parts for name in loaded.listeners))
    twice = [
        Problem(name.partition(":")[2], f"{homes[name][0]} has this listener too; only one app may", file)
        for name in listeners
        if name not in single
        for file in homes[name][1:]
    ]
    return Loaded(
        definitions,
        (*problems, *(each for _, loaded in parts for each in loaded.problems), *twins, *twice),
        handlers=tuple(dict.fromkeys(it for _, loaded in parts for it in loaded.handlers if it in single)),
        listeners=tuple(name for name in listeners if name in single),
        digest=_joined_digest([loaded.digest for _, loaded in parts if loaded.digest]),
        homes=tuple(single.items()),
        files=tuple(dict.fromkeys(file for _, loaded in parts for file in loaded.files)),
        sources=tuple(source for _, loaded in parts for source in loaded.sources),
        covered=tuple(dict.fromkeys(it for _, loaded in parts for it in loaded.covered)),
    )


def _without_twins(parts: Sequence[tuple[str, Loaded]]) -> tuple[tuple[Definition, ...], list[Problem]]:
    by_name: dict[tuple[str, ...], list[tuple[str, Definition]]] = {}
    for place, loaded in parts:
        for definition in loaded.definitions:
            by_name.setdefault(tuple(part.lower() for part in definition.full_name), []).append((place, definition))
    problems = [
        Problem(f"jobs.{definition.name}", f"is defined in {several[0][0]} too", place)
        for several in by_name.values()
        for place, definition in several[1:]
    ]
    return tuple(several[0][1] for several in by_name.values() if len(several) == 1), problems


def _joined_digest(digests: Sequence[str]) -> str:
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest() if digests else ""
