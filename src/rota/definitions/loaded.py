"""What was found in a place where people keep jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from rota.errors import Problem
from rota.model.job import Definition


class Loaded(NamedTuple):
    """Definitions that are right, and what is wrong with the others; of apps also what a node can call: the handlers
    by their full names, the listeners by theirs, the file of each, and a digest of the code. It is also what the
    collecting process answers."""

    definitions: tuple[Definition, ...] = ()
    problems: tuple[Problem, ...] = ()
    handlers: tuple[str, ...] = ()
    listeners: tuple[str, ...] = ()
    digest: str = ""
    homes: tuple[tuple[str, str], ...] = ()
    """By advertised name, the file whose app has it."""

    def with_apps(self, parts: Sequence[Loaded]) -> Loaded:
        """The same, with what can be called of all these parts."""
        digests = [part.digest for part in parts if part.digest]
        return self._replace(
            handlers=tuple(dict.fromkeys(name for part in parts for name in part.handlers)),
            listeners=tuple(dict.fromkeys(name for part in parts for name in part.listeners)),
            homes=tuple(dict(home for part in parts for home in part.homes).items()),
            digest=digests[0] if len(digests) == 1 else _joined(digests),
        )


def _joined(digests: Sequence[str]) -> str:
    return hashlib.sha256(" ".join(digests).encode()).hexdigest() if digests else ""
