"""What was found in a place where people keep jobs."""

from __future__ import annotations

from typing import NamedTuple

from rota.errors import Problem
from rota.model.job import Definition


class Loaded(NamedTuple):
    """Definitions that are right, and what is wrong with the others. It is also what the collecting process answers."""

    definitions: tuple[Definition, ...] = ()
    problems: tuple[Problem, ...] = ()
