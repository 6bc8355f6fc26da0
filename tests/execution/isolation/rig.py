"""Agents to kill, trees that witness for themselves, and a broom: nothing that a test started is left when it ends."""

import fcntl
import itertools
import json
import os
import secrets
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import psutil

from rota.execution.isolation import sweeping
from rota.execution.isolation.availability import why_not
from rota.execution.isolation.promises import BoundaryKind

ROOT = Path(__file__).resolve().parents[3]
SHAPES = ("plain", "setsid", "double_fork", "nohup", "storm", "stubborn")
STAY_IN_GROUP = ("plain", "nohup", "stubborn")
"""The shapes that never leave their process group."""
NOBODY = 65534
IS_ROOT = os.geteuid() == 0
USERS = (None, "nobody") if IS_ROOT else (None,)
KINDS = [kind for kind in BoundaryKind if not why_not(kind)]
PATIENCE_S = 60.0


def _reachable() -> str:
    """A Python that every user may execute; the one of the tests may lie in somebody's home."""
    for path in (
        sys.executable,
        *(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}", "/usr/bin/python3"),
    ):
        real = Path(path).resolve()
        if real.exists() and all(each.stat().st_mode & 0o001 for each in (real, *real.parents)):
            return path
    return sys.executable


PYTHON = _reachable()
SITE = sysconfig.get_path("purelib")
_FOLDERS = itertools.count()


class AgentFailed(Exception):
    """The agent ended where it should not; what it said is in the message."""


class Witnesses:
    """What the processes of one tree say of themselves, by the files that they lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        folder.chmod(0o777)

    @property
    def seen(self) -> int:
        """How many processes have come as far as to lock their file."""
        return sum(1 for _ in self._files())

    @property
    def alive(self) -> int:
        return sum(map(_is_locked, self._files()))

    def _files(self) -> Iterable[Path]:
        return (path for path in self.folder.iterdir() if not path.name.startswith("."))


class Rig:
    """One agent process with trees of all shapes."""

    def __init__(self, folder: Path, *, source: Path = ROOT / "src", user: int | None = None) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.mark = f"test-{secrets.token_hex(8)}"
        self.trees: dict[str, Witnesses] = {}
        self.facts: dict[str, Any] = {}
        self._plan: list[dict[str, Any]] = []
        self._source = source
        self._user = user
        self._agent: subprocess.Popen[str] | None = None
        self._zygotes: list[psutil.Process] = []
        folder.mkdir(exist_ok=True)
        folder.chmod(0o1777)
        self.state_dir.mkdir(mode=0o700, exist_ok=True)
        if user is not None:
            os.chown(self.state_dir, user, user)

    def add(self, shape: str, user: str | None = None, *, hold_s: float = 0.0, **env: str) -> Witnesses:
        """A tree for the next agent."""
        label = f"{shape}-{user}-{next(_FOLDERS)}"
        witnesses = Witnesses(self.folder / label)
        argv = [PYTHON, "-I", "-S", str(Path(__file__).with_name("shapes.py")), shape, str(witnesses.folder)]
        env = {"PROBE": self.mark, **env}
        self._plan.append({"argv": argv, "env": env, "user": user, "hold_s": hold_s, "label": label})
        self.trees[label] = witnesses
        return witnesses

    def run(self, argv: list[str], *, user: str | None, label: str) -> None:
        """A tree of any program, for the next agent."""
        self._plan.append({"argv": argv, "env": {"PROBE": self.mark}, "user": user, "hold_s": 0.0, "label": label})

    def start(self, kind: BoundaryKind | None, *, lease_s: float = 1000.0) -> None:
        """Start the agent, and wait until every tree has the processes that its shape has."""
        plan = self.folder / "plan.json"
        trees, self._plan = self._plan, []
        content = {"kind": kind, "state_dir": str(self.state_dir), "lease_s": lease_s, "trees": trees}
        plan.write_text(json.dumps(content))
        with (self.folder / "agent.log").open("ab") as log:
            self._agent = self._spawn(plan, log)
        self.facts = self.next_line()
        with suppress(psutil.NoSuchProcess):
            self._zygotes.append(psutil.Process(self.facts["zygote"]))
        wait_until(lambda: not self._unborn, "each tree has begun", lambda: (self._unborn, self.alive))

    def _spawn(self, plan: Path, log: IO[bytes]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [PYTHON, "-S", str(Path(__file__).with_name("agent.py")), str(plan)],
            env={"PYTHONPATH": f"{self._source}:{SITE}", "PATH": os.defpath, "PROBE_AGENT": self.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            user=self._user,
            group=self._user,
            extra_groups=None if self._user is None else [],
        )

    @property
    def _unborn(self) -> list[str]:
        return [label for label, tree in self.trees.items() if tree.seen < 2]

    @property
    def pid(self) -> int:
        assert self._agent is not None
        return self._agent.pid

    @property
    def alive(self) -> dict[str, int]:
        """The trees of which somebody is alive, and how many."""
        return {label: alive for label, tree in self.trees.items() if (alive := tree.alive)}

    def next_line(self) -> dict[str, Any]:
        """The next thing that the agent says."""
        assert self._agent is not None
        assert self._agent.stdout is not None
        text = self._agent.stdout.readline()
        if not text:
            raise AgentFailed((self.folder / "agent.log").read_text())
        line: dict[str, Any] = json.loads(text)
        return line

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL for the agent, nobody else."""
        assert self._agent is not None
        self._agent.kill()
        self._agent.wait()

    def kill_supervisors(self) -> None:
        for pid in self.facts["supervisors"].values():
            os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Leave nothing behind, whatever happened: by the marks of this test alone."""
        if self._agent:
            self.kill()
            assert self._agent.stdout is not None
            self._agent.stdout.close()
        while self._kill_marked():
            pass
        if self._user is None:
            sweeping.sweep_now(self.state_dir)

    def _kill_marked(self) -> int:
        return sum(_kill(process) for process in psutil.process_iter() if self._is_ours(process))

    def _is_ours(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error, OSError):
            return process in self._zygotes or process.environ().get("PROBE") == self.mark
        return False


def _kill(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        process.kill()
        return True
    return False


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def wait_until(
    condition: Callable[[], object], what: str, but: Callable[[], object] = str, patience_s: float = PATIENCE_S
) -> None:
    """Wait for it; if it does not come, say what it would have been, and what is instead."""
    until = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < until, f"it did not come true that {what}: {but()}"
        time.sleep(0.01)
