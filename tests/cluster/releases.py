"""Releases of this product beside each other on one machine: each has a Python of its own, all the same libraries."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from tests.cluster.processes import ROOT

COMMAND = "from rota.cli.main import main; main()"
COMMAND_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release, by the Python that imports it: in the processes of its nodes and in all that those start."""

    python: Path

    async def rota(self, url: str, *arguments: str) -> str:
        """Type a command, which must succeed; returns what it prints."""
        return await self.run(COMMAND, *arguments, settings={"ROTA_STORE": url})

    async def run(self, program: str, *arguments: str, settings: Mapping[str, str] | None = None) -> str:
        """Run a Python program of somebody who has installed this release; returns what it prints."""
        command = [str(self.python), "-P", "-c", program, *arguments]
        done = await asyncio.to_thread(
            subprocess.run,
            command,
            env={**os.environ, **(settings or {})},
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )
        assert done.returncode == 0, f"{arguments} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


THIS = Release(python=Path(sys.executable))


def source_of(commit: str, folder: Path) -> Path:
    """The product as it was, in a folder of its own."""
    packed = subprocess.run(["git", "archive", commit, "src/rota"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def installed(commit: str, folder: Path) -> Release:
    """The product as it was, with the libraries that are installed here.

    `PYTHONPATH` would not do: a node hands none of its environment to the workers that it starts. Nor do the links of
    editable packages count in a folder that a `.pth` file names, so that the product as it is now cannot be found.
    """
    source = source_of(commit, folder)
    venv.create(folder / "venv", with_pip=False)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    (packages / "release.pth").write_text(f"{source}\n{sysconfig.get_path('purelib')}\n")
    return Release(python=folder / "venv" / "bin" / "python")
