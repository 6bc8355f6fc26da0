"""Decides as which user a task runs: the one that it names, else `executor.user`, else the user of the node.

A node with an `executor.user` runs nothing as its own user, so that tasks cannot read the files of the node.
"""

from __future__ import annotations

import os
import pwd

from msgspec.structs import replace

from rota import system
from rota.errors import InvalidInput
from rota.model.work import ExecutionSpec

_FIELD = "executor.user"


class Users:
    """The rule of one node. Raises `InvalidInput` if it cannot run tasks as `default`."""

    def __init__(self, default: str | None) -> None:
        self._default = default
        if default is None:
            return
        found = user_entry(default)
        if found is None:
            raise InvalidInput.of(_FIELD, f"there is no user {default!r} on this host")
        if os.geteuid() != 0 and found.pw_uid != os.geteuid():
            raise InvalidInput.of(_FIELD, f"only a node of root can run tasks as {default!r}")
        if found.pw_uid == 0:
            raise InvalidInput.of(
                _FIELD, "name a user that is not root; without this setting, tasks of a root node are"
            )

    def named(self, spec: ExecutionSpec) -> ExecutionSpec:
        """The same, with its user filled in."""
        if self._default is None or spec.bounds.user is not None:
            return spec
        return replace(spec, bounds=replace(spec.bounds, user=self._default))

    def refusal(self, user: str | None) -> str:
        """Return why this node runs no task as that user; an empty text if it does."""
        if self._default is None or user is None or user == self._default:
            return ""
        found = user_entry(user)
        if found is None or found.pw_uid not in (0, os.geteuid()):
            return ""
        return f"this node runs no task as {user}: its executor.user is {self._default}"


def user_entry(name: str) -> pwd.struct_passwd | None:
    """The entry of a user in the password database, by name or number; none if there is no such user."""
    try:
        is_number = name.isascii() and name.isdecimal()
        return pwd.getpwuid(int(name)) if is_number else pwd.getpwnam(name)
    except (KeyError, ValueError):  # nobody has that name, or nobody could
        return None


def rights_of_root() -> str:
    return "root, without capabilities" if system.IS_LINUX else "root, with all its rights"


def run_as_root(user: str | None) -> bool:
    """True if tasks that name no user run as root, because the node does."""
    return os.geteuid() == 0 and user is None
