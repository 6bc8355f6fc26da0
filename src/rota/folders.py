"""Where a node keeps what is its own alone, if nobody says where."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path


def state_path(uid: int, given: Mapping[str, str]) -> str:
    """Where the executors of a user note their process trees: a folder that no other user could have made before.

    Not below XDG_RUNTIME_DIR, if there is another: that goes when the user logs out, and the node may stay. Homes are
    shared by hosts, numbers of processes are not, so each host has a folder of its own. Nothing, if there is no place.
    """
    if uid == 0:
        return "/run/rota" if Path("/run").is_dir() else "/var/run/rota"  # macOS has the older one only
    home = given.get("HOME", "")
    for base in (given.get("XDG_STATE_HOME", ""), f"{home}/.local/state" if _is_own(home, uid) else ""):
        if base.startswith("/"):
            return f"{base}/rota/{socket.gethostname()}"
    runtime = given.get("XDG_RUNTIME_DIR", "")
    return f"{runtime}/rota" if _is_own(runtime, uid) else ""


def _is_own(path: str, uid: int) -> bool:
    try:
        return path.startswith("/") and Path(path).stat().st_uid == uid
    except OSError:
        return False
