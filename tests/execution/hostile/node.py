"""A real node with hostile tasks, and all that they could be after: its files, its port, those who hold them."""

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from rota.execution.isolation import cgroup
from rota.execution.isolation.promises import BoundaryKind
from tests.execution.hostile.calls import session_keyring
from tests.execution.hostile.deeds import DEEDS
from tests.execution.isolation.rig import IS_ROOT, NOBODY, PYTHON, ROOT, SITE, wait_until
from tests.servers.ports import free_port

SECRET = "hunter2"
ANOTHER = 12345
"""A user of the host that has nothing to do with the node."""
STRANGER = 54321
PATIENCE_S = 60.0
"""Hundreds of processes, one after another."""
SHELL = ("/bin/sh", "-c", '"$@"; exit $?', "sh")
"""Nodes are started by somebody who knows the password, and stays."""

Found = dict[str, dict[str, str]]
Fact = TypeVar("Fact")


class Node:
    """A node that runs as `user`, with the tasks of each of `tasks` (their users; none: the node's own)."""

    def __init__(self, folder: Path, kind: BoundaryKind, user: int | None, tasks: list[str | None]) -> None:
        self.folder = folder
        self.uid = os.geteuid() if user is None else user
        self._user = user
        self.tasks = tasks
        self._port = free_port()
        self._home = self._own("home", self.uid)
        self._state = self._own("state", self.uid)
        (self._home / "rota.toml").write_text(
            f'[executor]\nboundary = "{kind}"\nstate_path = "{self._state}"\n[alarm]\nsmtp_user = "{SECRET}"\n'
        )
        (self._home / "jobs.yaml").write_text(json.dumps({"jobs": dict(self._jobs())}))
        (self._home / "rota.toml").chmod(0o600)
        for path in self._home.iterdir():
            os.chown(path, self.uid, -1)

    @contextmanager
    def running(self) -> Iterator[None]:
        env = {"PATH": os.defpath, "PYTHONPATH": f"{ROOT / 'src'}:{SITE}", "ROTA_ALARM_SMTP_PASSWORD": SECRET}
        start = (PYTHON, "-S", "-c", "from rota.cli.main import main; main()", "node", "start", "--listen")
        group = self._user
        with (self.folder / "log").open("wb") as log:
            shell = subprocess.Popen(
                [*SHELL, *start, f"127.0.0.1:{self._port}", "--definitions", "jobs.yaml"],
                start_new_session=True,
                cwd=self._home,
                env=env,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                user=self._user,
                group=group,
                extra_groups=None if group is None else [],
            )
        try:
            yield
        finally:
            for process in psutil.Process(shell.pid).children():
                with suppress(psutil.NoSuchProcess):
                    process.kill()  # the switches of its trees do the rest
            shell.wait()

    def tell(self) -> None:
        """Let the deeds know what is there, when it is."""
        wait_until(lambda: self._neighbours() and list(self._home.rglob("*.log")), "tasks run", self._log, PATIENCE_S)
        for user in self.tasks:
            self._write(f"context-{user}.json", user)

    @property
    def agent(self) -> psutil.Process:
        said = _asked(self._processes(), psutil.Process.cmdline)
        return next(it for words, it in said if "node" in words and "/bin/sh" not in words)

    def holders(self) -> dict[str, int]:
        """Who holds the first neighbour."""
        agent = self.agent
        found = {name: it.pid for name, it in _asked(agent.children(recursive=True), psutil.Process.name)}
        return {"agent": agent.pid, "zygote": found["rota-zygote"], "supervisor": found["rota-tree"]}

    def found(self, user: str | None) -> Found:
        """What the deeds of a task have found."""
        uid = self.uid if user is None else NOBODY
        answer = self.folder / f"own-{uid}" / "found"
        wait_until(answer.exists, "it has tried everything", self._log, PATIENCE_S)
        found: Found = json.loads(answer.read_text())
        return found

    def found_by_another(self) -> Found:
        own = self._own(f"own-{ANOTHER}", ANOTHER)
        context = json.loads((self.folder / f"context-{self.tasks[0]}.json").read_text())
        path = self.folder / "context-another.json"
        content = {**context, "supervisor": self.holders()["supervisor"], "stays": False}
        path.write_text(json.dumps({**content, "folders": {str(ANOTHER): str(own)}}))
        command = [PYTHON, "-I", "-S", str(DEEDS), str(path)]
        given: dict[str, Any] = {"user": ANOTHER, "group": ANOTHER, "extra_groups": [], "start_new_session": True}
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, env={}, **given)
        found: Found = json.loads((own / "found").read_text())
        return found

    def _jobs(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for user in self.tasks:
            once = {"every_s": 1, "overlap": "forbid", **({} if user is None else {"user": user})}
            context = str(self.folder / f"context-{user}.json")
            yield f"hostile-{user}".lower(), {**once, "shell": [PYTHON, "-I", "-S", str(DEEDS), context]}
            yield f"neighbour-{user}".lower(), {**once, "shell": ["/bin/sh", "-c", "echo here; exec sleep 1000"]}

    def _own(self, name: str, uid: int) -> Path:
        path = self.folder / name
        path.mkdir(mode=0o700 if name == "state" else 0o755, exist_ok=True)
        os.chown(path, uid, -1)
        return path

    def _processes(self) -> list[psutil.Process]:
        return [it for it in psutil.Process().children(recursive=True) if it.is_running()]

    def _neighbours(self) -> dict[int, psutil.Process]:
        """By user; once all of them run."""
        said = _asked(self._processes(), lambda it: (it.name(), it.uids().real))
        found = {uid: it for (name, uid), it in said if name == "sleep"}
        return found if len(found) == len(self.tasks) else {}

    def _log(self) -> str:
        return (self.folder / "log").read_text()

    def _foreign(self) -> str:
        """A file of somebody else."""
        if not IS_ROOT:
            return "/etc/shadow"
        path = self._own("foreign", STRANGER) / "file"
        path.write_text("x")
        path.chmod(0o600)
        os.chown(path, STRANGER, -1)
        return str(path)

    def _write(self, name: str, user: str | None) -> None:
        uid = self.uid if user is None else NOBODY
        neighbour = self._neighbours()[uid]
        work = Path(neighbour.cwd())
        content = {
            "agent": self.agent.pid,
            "zygote": self.holders()["zygote"],
            "neighbour": neighbour.pid,
            "port": self._port,
            "toml": str(self._home / "rota.toml"),
            "db": str(self._home / "rota.db"),
            "state": str(self._state),
            "record": str(next(self._state.glob("agent-*/agent.json"))),
            "logs": str(self._home / "rota-logs"),
            "log": str(next(self._home.rglob("*.log"))),
            "work": str(work.parent.parent),
            "victim": str(work),
            "foreign": self._foreign(),
            "group": cgroup.unified() or "/sys/fs/cgroup",
            "secret": SECRET,
            "keyring": session_keyring(),
            "folders": {str(uid): str(self._own(f"own-{uid}", uid))},
            "stays": True,
            "patience_s": 10.0,
        }
        unfinished = self.folder / f".{name}"
        unfinished.write_text(json.dumps(content))
        unfinished.chmod(0o644)
        unfinished.rename(self.folder / name)


def _asked(
    processes: Iterable[psutil.Process], ask: Callable[[psutil.Process], Fact]
) -> Iterator[tuple[Fact, psutil.Process]]:
    """What each of them says of itself, without those that have ended meanwhile."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            yield ask(process), process
