"""Somebody at a terminal, with rota from its wheel in an otherwise empty folder; what is typed and seen is kept."""

from __future__ import annotations

import contextlib
import getpass
import io
import json
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rota.cli.main import run
from tests.e2e.rig import Process
from tests.e2e.snapshot import Steady, compare
from tests.e2e.wheel import Installed

CHAPTERS = Path(__file__).parent / "first_hour"


class Story:
    """A chapter: commands and what they print, in their order."""

    def __init__(self, folder: Path, installed: Installed, store: str = "", **env: str) -> None:
        self.folder = folder
        self._installed = installed
        self._store = store
        self._env = {**installed.env(), "ROTA_NODE_NAME": "laptop", **env} | ({"ROTA_STORE": store} if store else {})
        me, host = re.escape(getpass.getuser()), re.escape(socket.gethostname())
        names = {
            re.escape(store) or "(?!)": "postgresql://rota@db/rota",
            re.escape(str(folder)): "/home/you",
            re.escape(str(installed.folder)): "/home/you/venv",
            rf"\b{me}@{host}\b": "you@laptop",
            rf"(?<=@){host}\b": "laptop",
            rf"\b{host}(?=, pid)": "laptop",
        }
        self._steady = Steady(names)
        self._text = ""

    def says(self, text: str) -> None:
        """What somebody thinks."""
        self._text += f"# {text}\n"

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        self._seen(f"cat {name}", text)

    def rota(self, command: str, *, code: int = 0, without: str = "(?!)") -> str:
        """Type a command of rota, which ends with this code; returns what was seen. Lines `without` are not kept."""
        return self._type([str(self._installed.rota), *command.split()], f"rota {command}", code, without)

    def python(self, command: str) -> str:
        return self._type([str(self._installed.python), *command.split()], f"python {command}", 0, "(?!)")

    def where(self) -> Path:
        """Where Python finds rota here. It is not part of the story."""
        find = [str(self._installed.python), "-c", "import rota; print(rota.__file__)"]
        found = subprocess.run(find, cwd=self.folder, env=self._env, capture_output=True, text=True, check=True)
        return Path(found.stdout.strip())

    def start(self, command: str, **env: str) -> Process:
        """Start a rota that goes on."""
        self._text += f"$ rota {command} &\n\n"
        return Process([str(self._installed.rota), *command.split()], self.folder, {**self._env, **env})

    def stop(self, process: Process, *told: str) -> None:
        """Interrupt it, and see of its log the lines that tell one of these; others may be there, by chance."""
        process.send(signal.SIGINT)
        assert process.ends(60) == 0, process.log
        self._text += "^C\n"
        self.log(process, *told)

    def log(self, process: Process, *told: str) -> None:
        lines = [line for line in process.log.splitlines() if any(f" {it} " in f"{line} " for it in told)]
        self._text += self._steady.text("\n".join(lines)) + "\n"

    def json(self, command: str) -> Any:
        """Ask for something that is not part of the story."""
        store = ("--store", self._store) if self._store else ()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(io.StringIO()) as out:
            assert run([*command.split(), "--json", *store]) == 0
        return json.loads(out.getvalue())

    def keep(self, chapter: str, config: pytest.Config) -> None:
        """The end: it must be what is kept, and name nothing of this machine."""
        for name in (str(self.folder), str(self._installed.folder), str(Path(__file__).parents[2])):
            assert name not in self._text
        compare(CHAPTERS / f"{chapter}.txt", self._text, config)

    def _type(self, argv: list[str], shown: str, code: int, without: str) -> str:
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
        )
        assert done.returncode == code, f"{shown}: {done.returncode}\n{done.stdout}"
        kept = [line for line in done.stdout.splitlines() if not re.match(without, line)]
        self._seen(shown, "\n".join(kept), code)
        return done.stdout

    def _seen(self, shown: str, text: str, code: int = 0) -> None:
        ended = f"(exit code {code})\n" if code else ""
        self._text += self._steady.text(f"$ {shown}") + self._steady.text(text) + ended + "\n"
