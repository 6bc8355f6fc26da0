"""Which kinds of boundary this host lets us make, found by making one."""

from __future__ import annotations

import os

from rota import system
from rota.errors import BoundaryFailed
from rota.execution.isolation import cgroup, processes
from rota.execution.isolation.promises import BoundaryKind
from rota.execution.isolation.zygote_link import check_zygote


def strongest() -> BoundaryKind:
    for kind in BoundaryKind:
        if not why_not(kind):
            return kind
    raise BoundaryFailed(f"no kind of boundary can be had here: {why_not(BoundaryKind.GROUP)}")


def why_not_stronger(kind: str) -> str:
    """Why the kind in use is not a stronger one; nothing if it is the strongest. It may start a process."""
    whys: dict[str, list[str]] = {}
    for it in list(BoundaryKind)[: list(BoundaryKind).index(BoundaryKind(kind))]:
        whys.setdefault(why_not(it) or "could be had, but another is configured", []).append(it)
    return "; ".join(f"{', '.join(kinds)}: {why}" for why, kinds in whys.items())


def require(kind: BoundaryKind) -> None:
    """Raise `BoundaryFailed` if it is already known that this kind cannot be had; its zygote knows the rest."""
    if why := _platform(kind) or (_no_cgroup() if kind is BoundaryKind.CGROUP else ""):
        raise BoundaryFailed(f"no {kind} boundary: {why}")


def why_not(kind: BoundaryKind) -> str:
    """Why a kind cannot be had here; an empty text if it can. From the main thread: it may start a process."""
    tests = {BoundaryKind.NAMESPACE: _no_namespace, BoundaryKind.CGROUP: _no_cgroup}
    return _platform(kind) or tests.get(kind, str)()


def _platform(kind: BoundaryKind) -> str:
    if not system.IS_LINUX:
        if kind is not BoundaryKind.GROUP:
            return f"it needs Linux, and this is {system.NAME}"
        return "" if processes.this_process() else "/bin/ps does not tell of this process when it started"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return f"this kernel has no pidfd_open (Linux 5.3): {error}"
    return ""


def _no_cgroup() -> str:
    if cgroup.unified() is None:
        return "there is no cgroup v2 hierarchy with cgroup.kill (Linux 5.14) in which this user may make groups"
    return ""


def _no_namespace() -> str:
    try:
        check_zygote(BoundaryKind.NAMESPACE)
    except BoundaryFailed as error:
        return str(error)
    return ""
