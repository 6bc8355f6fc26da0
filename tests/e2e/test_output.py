"""What a person or a script meets at the edges of the output."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.e2e.rig import ROTA


def rota(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROTA, *arguments], cwd=folder, capture_output=True, text=True, timeout=60)


def test_a_reader_that_goes_away_is_exit_code_130(tmp_path: Path) -> None:
    assert rota(tmp_path, "store", "migrate").returncode == 0
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([ROTA, "config", "show"], cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, timeout=60)
    finally:
        os.close(writer)
    assert done.returncode == 130


def test_a_job_that_will_never_be_due_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text('jobs:\n  old:\n    once_at: 2020-01-01T00:00:00Z\n    shell: ["true"]\n')
    rota(tmp_path, "store", "migrate")
    done = rota(tmp_path, "job", "apply", "old.yaml")
    assert done.returncode == 0
    assert "warning: old will never be due" in done.stderr
