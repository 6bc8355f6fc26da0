"""What type checkers say about a user's file, with rota as the wheel has it: nothing but what the file expects."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.wheel import BIN, ROOT, Installed

USER = ROOT / "tests" / "typing" / "user.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with nothing but the user's file."""
    shutil.copy(USER, tmp_path / "user.py")
    return tmp_path


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(it) for it in command], cwd=cwd, capture_output=True, text=True, timeout=110)
    return done.stdout + done.stderr


def test_a_users_file_passes_mypy_strict_against_the_wheel(installed: Installed, folder: Path) -> None:
    assert (installed.packages / "rota" / "py.typed").exists()
    options = ("--strict", "--warn-unused-ignores", "--config-file=", "--python-executable", installed.python)
    said = run(BIN / "mypy", *options, "--cache-dir", folder / "cache", "user.py", cwd=folder)
    assert said == "Success: no issues found in 1 source file\n"


def test_a_users_file_passes_pyright_strict_against_the_wheel(installed: Installed, folder: Path) -> None:
    settings = {"typeCheckingMode": "strict", "include": ["user.py"], "reportUnnecessaryTypeIgnoreComment": True}
    # mypy's own remarks are none of pyright's business
    (folder / "pyright.json").write_text(json.dumps({**settings, "enableTypeIgnoreComments": False}))
    said = run(BIN / "basedpyright", "-p", "pyright.json", "--pythonpath", installed.python, cwd=folder)
    assert "0 errors, 0 warnings, 0 notes" in said, said
