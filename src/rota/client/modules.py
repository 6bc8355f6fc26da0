"""Which of the loaded modules are the user's own: those below the folder of the app's file, or below given folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

FILES_MAX = 500
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH100, PTH120 - texts are compared


def files_below(folders: Iterable[str]) -> list[str]:
    """The files of modules that were loaded from these folders, sorted; installed packages do not count."""
    roots = tuple(os.path.realpath(folder).rstrip(os.sep) + os.sep for folder in folders)
    found = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and _is_below(os.path.realpath(file), roots):
            found.add(os.path.realpath(file))
    return sorted(found)[:FILES_MAX]


def _is_below(file: str, roots: tuple[str, ...]) -> bool:
    return file.startswith(roots) and not file.startswith(_OWN) and not any(name in file for name in _PACKAGES)
