"""Run the installed `rota` as people do: in a folder of its own, without settings from outside."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

from rota.cli.main import run

ROTA = str(Path(sys.executable).parent / "rota")

JOBS = """
jobs:
  beat:
    every_s: 1
    overlap: {policy: allow, live_max: 1000}
    shell: ["true"]
  nightly:
    cron: "30 2 * * *"
    zone: Europe/Berlin
    shell: ["true"]
  by-hand:
    params: {region: eu}
    overlap: {policy: queue, queue_max: 2, key: "load-${region}"}
    shell: ["true"]
"""


T = TypeVar("T")


def until(condition: Callable[[], T], within_s: float = 90.0) -> T:
    """Wait for what another process does."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.05)
    return found


class Home:
    """A folder to call rota in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}

    def write(self, name: str, text: str) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def rota(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ROTA, *arguments],
            cwd=self.path,
            env={**self.env, **(env or {})},
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )

    def ok(self, *arguments: str) -> str:
        """What a command prints that must succeed."""
        done = self.rota(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """The JSON of a command that must succeed. It runs in this process, because most tests ask for much of it."""
        with contextlib.chdir(self.path), contextlib.redirect_stdout(io.StringIO()) as out:
            assert run([*arguments, "--json"]) == 0
        return json.loads(out.getvalue())

    def refused(self, exit_code: int, *arguments: str, env: dict[str, str] | None = None) -> str:
        """What a command says that must fail so."""
        done = self.rota(*arguments, env=env)
        assert done.returncode == exit_code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stderr

    def told(self, exit_code: int, *arguments: str) -> str:
        """The same in this process, for tests that ask often."""
        with contextlib.chdir(self.path), contextlib.redirect_stderr(io.StringIO()) as err:
            assert run(arguments) == exit_code
        return err.getvalue()

    def start(self, *arguments: str) -> Process:
        return Process([ROTA, *arguments], self.path, self.env)

    def count(self, table: str) -> int:
        """How many rows a table of the store has."""
        with sqlite3.connect(self.path / "rota.db") as conn:
            number: int = conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        conn.close()
        return number


class Process:
    """A rota that goes on until it is stopped; its log is read as it comes."""

    def __init__(self, command: list[str], cwd: Path, env: dict[str, str]) -> None:
        self._log = cwd / f"log-{time.monotonic_ns()}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=cwd, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def log(self) -> str:
        return self._log.read_text()

    def says(self, text: str, *, times: int = 1, within_s: float = 90) -> None:
        """Wait until the log holds a text."""
        deadline = time.monotonic() + within_s
        while self.log.count(text) < times:
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self.log}"
            assert self._process.poll() is None or self.log.count(text) >= times, f"ended without {text!r}:\n{self.log}"
            time.sleep(0.05)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def until(self, condition: Callable[[], T]) -> T:
        """Wait for what this process does."""

        def found() -> T:
            seen = condition()
            assert seen or not self.has_ended, self.log
            return seen

        return until(found)

    def ends(self, within_s: float = 60) -> int:
        """The exit code."""
        return self._process.wait(within_s)


class Terminal:
    """A rota that sees a terminal."""

    def __init__(self, home: Home, *arguments: str, columns: int = 80, rows: int = 24) -> None:
        self._master, slave = pty.openpty()
        env = {**home.env, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(rows)}
        self._process = subprocess.Popen(
            [ROTA, *arguments], cwd=home.path, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self.shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._master)

    def shows(self, text: str, within_s: float = 90) -> None:
        deadline = time.monotonic() + within_s
        while text not in self.shown:
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self.shown}"
            ended = self._process.poll() is not None
            assert self._read(0.2) or not ended, f"ended without {text!r}:\n{self.shown}"

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def ends(self, within_s: float = 60) -> int:
        deadline = time.monotonic() + within_s
        while self._process.poll() is None and time.monotonic() < deadline:
            self._read(0.1)
        while self._read(0.1):
            pass
        return self._process.wait(1)

    def _read(self, wait_s: float) -> bool:
        if not select.select([self._master], [], [], wait_s)[0]:
            return False
        try:
            self.shown += os.read(self._master, 65536).decode(errors="replace")
        except OSError:  # the other side is closed
            return False
        return True
