"""The README is true: its figures, its extras, its picture. Its commands are typed in `test_pages.py`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from statistics import median

import pytest

from tests.e2e.pages import ROOT, blocks
from tests.e2e.rig import Home, Process

README = (ROOT / "README.md").read_text()


def test_hello_world_has_as_many_lines_as_it_says() -> None:
    hello = next(it for it in blocks(ROOT / "README.md") if it.title == "hello.py")
    assert README.count(f"{len(hello.text.splitlines())} lines, blank ones included") == 1


def test_make_run_starts_the_example(tmp_path: Path) -> None:
    """In a copy, with the environment that is there already: a fresh one is made by whoever runs these tests."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("scripts", "requirements", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / ".venv" / "bin", tmp_path / ".venv" / "bin", symlinks=True)
    for stamp in (".run", ".dev"):
        (tmp_path / ".venv" / stamp).touch()
    with Process(["make", "run"], tmp_path, Home(tmp_path).env) as made:
        made.says("scheduler.joined", within_s=60)
        run = subprocess.run(["pgrep", "-P", str(made.pid)], capture_output=True, text=True).stdout.split()
        assert run
        subprocess.run(["kill", "-INT", *run], check=True)
        made.ends()


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("PostgreSQL", r"\*\*([\d,]+) items a second"),
        ("SQLite", r"SQLite ([\d,]+) \("),
        ("MariaDB", r"MariaDB ([\d,]+) \("),
    ],
)
def test_its_figures_are_the_medians_of_the_runs_that_were_measured(store: str, told: str) -> None:
    measured = (ROOT / "docs" / "performance.md").read_text()
    (row,) = re.findall(rf"^\| {store} \| [\d,]+ \| ([\d,]+(?: · [\d,]+)+)", measured, re.MULTILINE)
    runs = [int(it.replace(",", "")) for it in row.split(" · ")]
    (figure,) = re.findall(told, README)
    assert int(figure.replace(",", "")) == int(median(runs))
    assert f"{len(runs)} runs" in README or f"(n = {len(runs)})" in README


def test_every_extra_it_names_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (named,) = re.findall(r"pip install '\.\[(.*?)\]'", README)
    assert set(named.split(",")) == set(extras) - {"all"}


def test_its_picture_is_what_the_view_draws_today() -> None:
    kept = (ROOT / "docs" / "live-view.svg").read_bytes()
    try:
        subprocess.run([sys.executable, "scripts/picture"], cwd=ROOT, check=True, timeout=60)
        assert (ROOT / "docs" / "live-view.svg").read_bytes() == kept
    finally:
        (ROOT / "docs" / "live-view.svg").write_bytes(kept)
