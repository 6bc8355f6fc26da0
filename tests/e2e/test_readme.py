"""The README is true: its commands are run as they stand, its files are those that are run, its picture is ours."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import pytest

from tests.e2e.rig import ROTA, Home, Process
from tests.servers.postgres import PostgresDatabases

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
STORE = "postgresql://rota@db/rota"
ENDLESS = ("rota up", "rota node start")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    return [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]


def test_hello_world_has_as_many_lines_as_it_says() -> None:
    hello = blocks("python")[0]
    assert README.count(f"{len(hello.splitlines())} lines, blank ones included") == 1


@pytest.mark.timeout(300)  # a dozen commands, each a process
def test_every_command_of_it_works(home: Home, postgres_server: PostgresDatabases) -> None:
    hello, program = blocks("python")
    home.write("hello.py", hello)
    home.write("program.py", program)
    ran, given = set(), commands()
    url = postgres_server.url(asyncio.run(postgres_server.create_database()))
    with ExitStack() as started:
        for command in given:
            words = command.replace(STORE, url).split()
            if command.startswith(ENDLESS):
                process = started.enter_context(Process([ROTA, *words[1:]], home.path, home.env))
                process.says("node.joined", within_s=90)
                if "up" in words:
                    process.until(lambda: home.json("run", "list", "--state", "succeeded"))
            elif words[0] == "rota":
                done = home.rota(*words[1:])
                assert done.returncode in ((0, 7) if "doctor" in words else (0,)), f"{command}: {done.stderr}"
            else:
                assert words[0] == "python"
                python = [sys.executable, *words[1:]]
                done = subprocess.run(python, cwd=home.path, env=home.env, capture_output=True, text=True, timeout=60)
                assert done.stdout == "hello you\n['hello a', 'hello b']\n", done.stderr
            ran.add(command)
    assert ran == set(given)
    assert len(ran) >= 10


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


def test_every_link_of_the_manual_leads_somewhere() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    dead = [
        f"{page.name}: {link}"
        for page in pages
        for link in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / link).exists()
    ]
    assert dead == []


def test_its_picture_is_what_the_view_draws_today() -> None:
    kept = (ROOT / "docs" / "live-view.svg").read_bytes()
    try:
        subprocess.run([sys.executable, "scripts/picture"], cwd=ROOT, check=True, timeout=60)
        assert (ROOT / "docs" / "live-view.svg").read_bytes() == kept
    finally:
        (ROOT / "docs" / "live-view.svg").write_bytes(kept)
