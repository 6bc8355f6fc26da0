"""rota as its users have it: from the wheel, in an environment of its own, far from our sources."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


class Installed:
    """An environment that has rota from its wheel, and the other packages from ours."""

    def __init__(self, folder: Path) -> None:
        wheels, site = folder / "dist", folder / "site"
        run(BIN / "hatchling", "build", "-t", "wheel", "-d", wheels, cwd=ROOT)
        run(sys.executable, "-m", "venv", "--without-pip", site, cwd=folder)
        self.folder = site
        self.python = site / "bin" / "python"
        self.rota = site / "bin" / "rota"
        self.packages = Path(sysconfig.get_path("purelib", vars={"base": str(site)}))
        (wheel,) = wheels.glob("*.whl")
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", self.python)
        run(*pip, "install", "--no-index", "--no-deps", wheel, cwd=folder)
        # The .pth files in there, of our editable rota among them, are not read by this.
        (self.packages / "others.pth").write_text(sysconfig.get_path("purelib"))

    def env(self) -> dict[str, str]:
        """The variables of somebody who activated it, without settings of rota or of Python."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROTA_", "PYTHON"))}
        return {**kept, "PATH": f"{self.folder / 'bin'}:{kept['PATH']}"}


def run(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run([str(it) for it in command], cwd=cwd, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
