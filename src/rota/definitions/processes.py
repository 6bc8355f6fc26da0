"""Check what a definition sets for the processes of a task: directory, user, environment variables."""

from __future__ import annotations

import re

from rota.definitions.characters import is_plain, is_whole
from rota.definitions.display import shown

PATH_BYTES_MAX = 4095
VARIABLES_MAX = 100
VALUE_BYTES_MAX = 32 * 1024
BYTES_MAX = 128 * 1024

_user = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_variable = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_RESERVED = frozenset({"PATH", "PYTHONPATH", "PYTHONHOME"})
_RESERVED_BEGINNINGS = ("ROTA_", "LD_")
"""Those of rota itself, and those that would change which code the processes around the task load."""


def directory(value: object) -> str:
    """Read the working directory. Only the node that runs the task can see whether it exists."""
    if not isinstance(value, str) or not value.startswith("/"):
        raise ValueError(f"must be a full path like /srv/reports, not {shown(value)}")
    if not is_plain(value):
        raise ValueError(f"must be one line of printable text, not {shown(value)}")
    if len(value.encode()) > PATH_BYTES_MAX:
        raise ValueError(f"must have at most {PATH_BYTES_MAX} bytes")
    return str(value)


def user(value: object) -> str:
    """Read the user that the processes run as. Only the node that runs the task can see whether it exists."""
    if not isinstance(value, str) or not _user.fullmatch(value):
        raise ValueError(
            "must be the name of a user: 1 to 32 of the characters A-Z a-z 0-9 . _ - that begin with a letter or _, "
            f"not {shown(value)}"
        )
    return str(value)


def environment(value: object) -> dict[str, str]:
    """Read the environment variables that the processes get besides those of rota."""
    if not isinstance(value, dict):
        raise ValueError(f"must be a mapping of names to texts, not {shown(value)}")
    if len(value) > VARIABLES_MAX:
        raise ValueError(f"must have at most {VARIABLES_MAX} variables, not {len(value)}")
    for name, content in value.items():
        _check_variable(name, content)
    size = sum(len(name) + len(content.encode()) + 2 for name, content in value.items())
    if size > BYTES_MAX:
        raise ValueError(f"takes {size} bytes; at most {BYTES_MAX} are allowed")
    return {str(name): str(content) for name, content in value.items()}


def _check_variable(name: object, content: object) -> None:
    if not isinstance(name, str) or not _variable.fullmatch(name):
        raise ValueError(
            "a variable's name must be letters, digits and _, not begin with a digit and have at most 100 characters, "
            f"not {shown(name)}"
        )
    if name in _RESERVED or name.startswith(_RESERVED_BEGINNINGS):
        raise ValueError(f"the variable {name} is reserved; it is set by the node")
    if not isinstance(content, str):
        raise ValueError(f"the variable {name} must be text, not {shown(content)}; put it in quotes")
    if not is_whole(content):
        raise ValueError(f"the variable {name} must not hold NUL or half characters: {shown(content)}")
    if len(content.encode()) > VALUE_BYTES_MAX:
        raise ValueError(f"the variable {name} has more than {VALUE_BYTES_MAX} bytes; hand large values over in a file")
