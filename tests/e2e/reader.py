"""Somebody who reads a page from top to bottom and does what it says: writes its files, types its commands.

What runs in front (`rota up`) is interrupted when a later section starts something, as a reader would before going on;
what was started with `&` runs until the end of the page, or until `kill -9 %1`. A command that only looks is repeated
until it shows what the page shows: the page does not say how long to wait, and nobody has to.
"""

from __future__ import annotations

import contextlib
import getpass
import io
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self
from unittest import mock

from rota.cli.main import run
from tests.e2e import accepted
from tests.e2e.pages import ROOT, Block, Command, commands
from tests.e2e.rig import ROTA, Home, Process
from tests.e2e.snapshot import Steady

WITHIN_S = 90.0
ENDLESS = ("rota up", "rota node start")
LOOKS = {"check", "doctor", "explain", "list", "logs", "ls", "nodes", "preview", "ps", "show", "status"}
_SHELL = re.compile(r"[|&;<>$(){}*]|^[A-Z_]+=")


class Reader:
    """`stand_ins` are texts of a page and what stands for them here, such as the URL of a server."""

    def __init__(self, folder: Path, stand_ins: Mapping[str, str]) -> None:
        home = Home(_made(folder / "home"))
        self.env = {**home.env, "ROTA_NODE_NAME": "laptop", "PATH": f"{Path(ROTA).parent}:{home.env['PATH']}"}
        self.typed: list[str] = []
        self._top, self.folder = folder, home.path
        self._stand_ins = stand_ins
        self._front: list[tuple[str, Process]] = []
        self._behind: list[Process] = []
        self._accepted = accepted.Accepted(_made(folder / "looked-at"))
        self._started = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    def read(self, block: Block) -> None:
        if block.language == "console":
            for command in commands(block):
                self._type(command)
            return
        if block.title and not block.title.startswith("/"):
            (self.folder / block.title).write_text(self._here(block.text))
        if not block.title.startswith("wrong"):
            self._accepted.look_at(block)

    def _interrupt(self, but: str) -> None:
        """End what earlier sections started."""
        over = [process for section, process in self._front if section != but]
        for process in over:
            process.send(signal.SIGINT)
        for process in over:
            assert process.ends(60) == 0, process.log
        self._front = [(section, process) for section, process in self._front if section == but]

    def _type(self, command: Command) -> None:
        self.typed.append(command.text)
        text = self._here(command.text)
        word, _, rest = text.partition(" ")
        if text.startswith(ENDLESS):
            self._interrupt(but=command.section)
            self._start(command, text)
        elif word == "export":
            name, _, value = rest.partition("=")
            self.env[name] = value
        elif text.startswith("kill -9 %"):
            self._behind[int(text.removeprefix("kill -9 %")) - 1].send(signal.SIGKILL)
        elif word in ELSEWHERE:
            ELSEWHERE[word](text, self.folder)
        else:
            self._ask(command, text)

    def _start(self, command: Command, text: str) -> None:
        accepted.command(text)
        words = [it for it in shlex.split(text, comments=True) if it not in ("&", "2>") and not it.endswith(".log")]
        process = self._started.enter_context(Process([ROTA, *words[1:]], self.folder, self.env))
        if text.endswith("&"):
            self._behind.append(process)
        else:
            self._front.append((command.section, process))
        process.says("scheduler.joined", within_s=90)  # before the next: nodes are listed as they joined

    def _ask(self, command: Command, text: str) -> None:
        """Once, or until it shows what it should."""
        looks = text.startswith("rota ") and not LOOKS.isdisjoint(text.split()[1:3])
        deadline = time.monotonic() + (WITHIN_S if looks else 0)
        while fault := self._differs(command, *self._done(text)):
            assert time.monotonic() < deadline, f"{command.where}: {command.text}: {fault}"
            time.sleep(0.1)

    def _done(self, text: str) -> tuple[int, str]:
        """The exit code of a command, and all that it printed. One of rota runs here, which is quicker, unless it needs
        a shell."""
        if text.startswith("rota ") and not _SHELL.search(text.partition("'")[0]):
            with (
                contextlib.chdir(self.folder),
                mock.patch.dict(os.environ, self.env, clear=True),
                contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) as out,
                contextlib.redirect_stderr(out),
            ):
                code = run(shlex.split(text, comments=True)[1:])
            out.seek(0)
            return code, out.read()
        place = self._top / "place"
        script = f"{text}\ncode=$?; pwd > {shlex.quote(str(place))}; exit $code"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
        )
        self.folder = Path(place.read_text().strip())
        return done.returncode, done.stdout

    def _differs(self, command: Command, code: int, printed: str) -> str:
        """What is not as the page says; nothing, if all is."""
        fails = any(it.startswith("error: ") for it in command.shown)
        if fails is (code == 0):
            return f"exit code {code}\n{printed}"
        actual = self._steady(printed)
        at = 0
        for line in self._steady("\n".join(command.shown)):
            if line not in actual[at:]:
                return f"shows no {line!r} in\n" + "\n".join(actual)
            at = actual.index(line, at) + 1
        return ""

    def _steady(self, text: str) -> list[str]:
        me, host = re.escape(getpass.getuser()), re.escape(socket.gethostname())
        names = {rf"\b{me}@{host}\b": "you@laptop", rf"\b{host}(?=, pid)": "laptop"}
        names |= {re.escape(here): said for said, here in self._stand_ins.items()}
        found = Steady(names).text(text).splitlines()
        return [" ".join(it.split()) for it in found if it.strip() and it.strip() != "…"]

    def _here(self, text: str) -> str:
        for said, here in self._stand_ins.items():
            text = text.replace(said, here)
        return text


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _pip(text: str, _: Path) -> None:
    """What would be installed: ourselves, with extras that there are. The wheel itself is tried in `wheel.py`."""
    words = shlex.split(text)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    known = subprocess.run([sys.executable, "-m", "pip", words[1], "--help"], capture_output=True, text=True).stdout
    assert [it for it in words[2:] if it.startswith("--") and it not in known] == [], text
    asked = [it for it in words[2:] if it.startswith((".", "rota", "/"))]
    assert asked, text
    for it in asked:
        found = re.fullmatch(r"(?:\.|rota)(?:\[(.*)\])?", it)
        assert found, text
        assert set(filter(None, (found[1] or "").split(","))) <= set(extras), text


def _file_is_there(text: str, folder: Path) -> None:
    """A command of another program, about a file of the page."""
    words = shlex.split(text)
    named = [it for it in words[1:] if re.search(r"\.(?:service|yaml|env)$", it)] or ["Dockerfile"]
    assert any((folder / Path(it).name).exists() or it.endswith((".service", ".env")) for it in named), text


def _nothing(text: str, folder: Path) -> None:
    """An environment is made and entered before these tests begin."""
    assert text in ("python3 -m venv .venv", ". .venv/bin/activate"), text


ELSEWHERE: dict[str, Callable[[str, Path], None]] = {
    "pip": _pip,
    "python3": _nothing,
    ".": _nothing,
    "docker": _file_is_there,
    "kubectl": _file_is_there,
    "sudo": _file_is_there,
}
"""Commands that need what a test must not touch, and what is looked at instead."""
