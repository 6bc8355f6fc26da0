"""Hundreds of hostile things, tried by tasks and by another user of the host: what was tried, promised, and happened.

`OWNER` names what the promise gives to a task of the node's own user, which owns the same files; all else is refused.
To see the table: pytest tests/execution/hostile -s -k namespace
"""

import json
import subprocess
from pathlib import Path

import psutil
import pytest
from _pytest.mark.structures import ParameterSet

from rota.execution.isolation import kernel
from rota.execution.isolation.promises import BoundaryKind
from tests.execution.hostile.calls import FAMILIES, IS_X86, NEWIPC, NEWNET, NEWNS, NEWUTS, libc, session_keyring
from tests.execution.hostile.deeds import DEEDS
from tests.execution.hostile.node import SECRET, Found, Node
from tests.execution.isolation.rig import IS_ROOT, KINDS, NOBODY, PYTHON, ROOT, SITE

WEAK = ("write oom_score_adj", "write clear_refs", "write coredump_filter", "write sched", "list its descriptors")
OWNER = {(family, name) for family in ("files", "groups") for name in FAMILIES[family]}
"""Files of the user: docs/trust.md says to set `executor.user` for tasks that shall not have them."""
SLOWS = {*FAMILIES["scheduling"], *(name for deeds in FAMILIES.values() for name in deeds if name.endswith(WEAK))}
"""What a process may do to others of its user, unless a namespace hides them, and to its own supervisor: it makes them
slower or fail, and then what they hold ends; and it may count their descriptors."""
SAME_USER = {"enter another's working folder"}
"""What tasks of one user may do to each other."""
OUTSIDE = {"have the keyring of the agent's session", "gain rights by set-uid programs"}
"""What says something of tasks only: another user has the session of the test here, and may use set-uid programs."""
NEVER = {
    "have a terminal": "there is none",
    "raise a hard limit": "in many containers not even root may",
    "load a module": "kernels without modules have no such call",
    "listen at the node's port": "the kernel lets nobody",
    "listen at the node's port at every address": "the kernel lets nobody",
}
"""What does not work even for root with all rights, beside what is tried in a user namespace."""


def test_there_are_more_than_a_hundred_of_every_family_that_matters() -> None:
    assert sum(len(deeds) for deeds in FAMILIES.values()) >= 100
    families = {"files", "signals", "tracing", "proc", "sockets", "namespaces", "descriptors"}
    assert min(len(FAMILIES[family]) for family in families) >= 10


@pytest.mark.skipif(not IS_X86, reason="elsewhere the numbers of some calls are not known")
def test_the_document_says_how_many_of_each_were_tried() -> None:
    text = (ROOT / "docs" / "trust.md").read_text()
    rows = [
        line.split("|")[1:3] for line in text.partition("## What was tried")[2].splitlines() if line.startswith("|")
    ]
    told = {row[0].strip().partition(":")[0].split()[0]: int(row[1]) for row in rows[2:]}
    assert told == {family: len(deeds) for family, deeds in FAMILIES.items()}
    assert f"tries {sum(told.values())} things" in text


def _usable_by_nobody() -> list[BoundaryKind]:
    """The boundaries that a node of an ordinary user can have here."""
    code = (
        "from rota.execution.isolation.availability import BoundaryKind, why_not; "
        "print(*(kind for kind in BoundaryKind if not why_not(kind)))"
    )
    env = {"PYTHONPATH": f"{ROOT / 'src'}:{SITE}"}
    done = subprocess.run(
        [PYTHON, "-S", "-c", code], env=env, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=True
    )
    return [BoundaryKind(word) for word in done.stdout.decode().split()]


def _case(kind: BoundaryKind, user: int | None) -> ParameterSet:
    """By day the two strongest boundaries of a node of root, and the strongest one of an ordinary user."""
    by_day = kind in (KINDS[:2] if user is None else KINDS[:1])
    return pytest.param(kind, user, id=f"{kind}-{user or 'own'}", marks=[] if by_day else [pytest.mark.nightly])


NODES = [_case(kind, None) for kind in KINDS] + [
    _case(kind, NOBODY) for kind in (_usable_by_nobody() if IS_ROOT else [])
]


@pytest.mark.parametrize(("kind", "user"), NODES)
def test_nothing_hostile_goes_beyond_the_promise(folder: Path, kind: BoundaryKind, user: int | None) -> None:
    node = Node(folder, kind, user, [None, "nobody"] if IS_ROOT and user is None else [None])
    with node.running():
        node.tell()
        found = {who: node.found(who) for who in node.tasks}
        if IS_ROOT:
            found["another user"] = node.found_by_another()
        alive = {name: psutil.Process(pid).status() for name, pid in node.holders().items()}
    for who, families in found.items():
        for family, deeds in families.items():
            print(*(f"{kind} | {user} | {who} | {family} | {name} | {said}" for name, said in deeds.items()), sep="\n")
    assert {who: _beyond(deeds, kind, who) for who, deeds in found.items()} == {who: {} for who in found}
    assert psutil.STATUS_STOPPED not in alive.values()


def _beyond(found: Found, kind: BoundaryKind, who: str | None) -> dict[tuple[str, str], str]:
    return {
        (family, name): said
        for family, deeds in found.items()
        for name, said in deeds.items()
        if said.startswith("worked") and not _is_promised(family, name, kind, who)
    }


def _is_promised(family: str, name: str, kind: BoundaryKind, who: str | None) -> bool:
    if name in SYSCTLS:
        return _sysctl(*SYSCTLS[name])
    if who == "another user":
        return name in OUTSIDE
    is_weak = kind is not BoundaryKind.NAMESPACE and not kernel.can_confine()
    if name.startswith("neighbour: ") or who is None:
        if is_weak and (family == "signals" or name.startswith("neighbour: ")):
            return True
        if name in SLOWS and (kind is not BoundaryKind.NAMESPACE or "supervisor" in name):
            return True
    return name in SAME_USER if who is not None else (family, name) in OWNER


SYSCTLS = {
    "use a port below 1024": ("net/ipv4/ip_unprivileged_port_start", range(1000)),
    "use bpf": ("kernel/unprivileged_bpf_disabled", range(1)),
    "read the kernel's log": ("kernel/dmesg_restrict", range(1)),
}
"""What a host may allow to everybody."""


def _sysctl(name: str, allowed: range) -> bool:
    return int(Path("/proc/sys", name).read_text()) in allowed


@pytest.mark.nightly
@pytest.mark.skipif(not IS_ROOT, reason="only root has all rights")
def test_all_of_it_works_where_nothing_is_in_the_way(folder: Path) -> None:
    """Else a deed would prove nothing: by root with all rights, against processes that nobody protects."""
    own = folder / "own-0"
    for name in ("own-0", "state", "logs", "work", "victim", "group"):
        (folder / name).mkdir()
    for name in (
        "toml",
        "db",
        "db-wal",
        "db-shm",
        "record",
        "log",
        "foreign",
        "group/cgroup.procs",
        "group/cgroup.kill",
    ):
        (folder / name).write_text("x")
    places = ("toml", "db", "state", "record", "logs", "log", "work", "victim", "foreign", "group")
    content = {
        **{name: str(folder / name) for name in places},
        "folders": {"0": str(own)},
        "secret": SECRET,
        "keyring": session_keyring(),
        "stays": False,
        "patience_s": 0.2,
    }
    (folder / "context.json").write_text(json.dumps(content))
    with Path("/dev/zero").open() as zero:
        subprocess.run(
            [PYTHON, "-I", "-S", str(DEEDS), str(folder / "context.json"), "--control", SECRET],
            env={"PASSWORD": SECRET},
            stdin=zero,
            check=True,
            preexec_fn=_apart,
        )
    found = json.loads((own / "found").read_text())
    refused = {name: said for deeds in found.values() for name, said in deeds.items() if said != "worked"}
    assert {name: said for name, said in refused.items() if name not in NEVER and "user namespace" not in name} == {}


def _apart() -> None:
    """What it does to mounts, names and networks is seen by itself only."""
    assert libc.unshare(NEWNS | NEWUTS | NEWIPC | NEWNET) == 0
    assert libc.mount(b"none", b"/", None, 1 << 14 | 1 << 18, None) == 0
