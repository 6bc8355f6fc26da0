"""A node of a release to come: it knows a word that this release does not, and says that it is newer."""

from __future__ import annotations

from typing import Any

from rota import node
from rota.model import records as rows
from rota.model import value

WORD, MEANING = "abreast", "allow"
"""An overlap policy of that release, and what it means."""
VERSION = "99.0.0"


def newer_release() -> None:
    decode = value.decode

    def understood(text: str | bytes, kind: Any) -> Any:
        plain = text.decode() if isinstance(text, bytes) else text
        return decode(plain.replace(f'"{WORD}"', f'"{MEANING}"'), kind)

    rows.decode = understood  # type: ignore[attr-defined]
    node.__version__ = VERSION  # type: ignore[attr-defined]


MUTANTS = {"newer_release": newer_release}
