"""The JSON of errors. No password of a URL gets into it."""

from __future__ import annotations

from collections.abc import Iterable

from rota.control.shapes.values import Shape
from rota.core.masking import without_passwords
from rota.errors import Problem


def error_shape(code: str, problems: Iterable[Problem], hint: str = "") -> Shape:
    """A code for programs, every problem for people, and what to do if there is anything to say about it."""
    told = [
        {name: without_passwords(it) if isinstance(it, str) else it for name, it in problem._asdict().items()}
        for problem in problems
    ]
    return {"code": code, "problems": told, **({"hint": hint} if hint else {})}
