"""Every documented exit code, from the installed command."""

import json
import sqlite3
import subprocess
from pathlib import Path

import click
import pytest

from rota.cli.faults import EXIT_CODES, fault_of
from rota.errors import CommitUnknown, InvalidInput, NotFound, Refused, StoreRefused, StoreUnavailable
from tests.e2e.rig import ROTA, Home


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (InvalidInput.of("field", "reason"), 2),
        (click.UsageError("no"), 2),
        (NotFound("no"), 3),
        (Refused("no"), 4),
        (StoreUnavailable("no"), 5),
        (CommitUnknown("no"), 5),
        (StoreRefused("no"), 6),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (ZeroDivisionError("no"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_has_its_code(error: BaseException, exit_code: int) -> None:
    fault = fault_of(error)
    assert fault.exit_code == exit_code
    assert fault.problems
    assert ("Please report it" in fault.hint) == (exit_code == 1)


def test_what_is_not_there_is_3(stored: Home) -> None:
    assert "there is no job none; see: rota job list" in stored.refused(3, "job", "show", "none")
    assert "there is no run 999999999" in stored.refused(3, "run", "show", "999999999")
    assert "there is no run 999999999" in stored.told(3, "run", "list", "--before", "999999999")
    assert "there is no job none" in stored.told(3, "run", "list", "--job", "none")
    for verb in ("pause", "resume", "delete", "trigger", "preview"):
        assert "there is no job none" in stored.told(3, "job", verb, "none")


def test_a_name_that_is_not_there_keeps_the_others_as_they_were(stored: Home) -> None:
    stored.refused(3, "job", "pause", "beat", "none")
    assert stored.json("job", "show", "beat")["state"] == "enabled"


def test_a_store_that_does_not_answer_is_5_and_its_password_is_not_told(home: Home) -> None:
    for url in ("postgresql://me:s3cret@127.0.0.1:1/x", "mysql://me:s3cret@127.0.0.1:1/x"):
        told = home.refused(5, "job", "list", "--store", url, "--json", "--config", str(_empty(home)))
        assert json.loads(told)["error"]["code"] == "store_unavailable"
        assert "s3cret" not in told
        assert "s3cret" not in home.rota("job", "list", "--store", url, "--debug").stderr


def _empty(home: Home) -> Path:
    return home.write("empty.toml", "")


def test_a_store_that_is_not_there_not_migrated_or_newer_is_6(home: Home) -> None:
    assert "there is no store at rota.db" in home.refused(6, "job", "list")
    assert not (home.path / "rota.db").exists()
    home.write("rota.db", "")
    assert "Run: rota store migrate" in home.refused(6, "job", "list")
    home.ok("store", "migrate")
    assert home.ok("store", "check") == "sqlite:///rota.db is fit for use\n"
    with sqlite3.connect(home.path / "rota.db") as conn:
        conn.execute("UPDATE rota_schema SET version_num = '9999'")
        conn.execute("UPDATE rota_meta SET value = '9999' WHERE name = 'readable_from'")
    conn.close()
    assert "newer release" in home.refused(6, "job", "list")
    assert "newer release" in home.refused(6, "store", "migrate")
    assert "newer release" in home.refused(6, "node")


def test_a_file_that_is_no_database_is_told_without_a_traceback(home: Home) -> None:
    home.write("rota.db", "this is not a database, but it is long enough to be taken for one" * 100)
    assert "not a database" in home.refused(5, "job", "list")


def test_a_reader_that_goes_away_is_not_a_bug(stored: Home) -> None:
    command = f"{ROTA} job preview beat -n 1000 | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=stored.path, env=stored.env, capture_output=True, text=True)
    assert done.returncode in (0, 130)  # 0: it was all written before the reader went
    assert done.stderr == ""


def test_debug_shows_a_traceback_and_nothing_else_does(home: Home) -> None:
    assert "Traceback" not in home.rota("job", "list").stderr
    assert "Traceback" in home.rota("job", "list", "--debug").stderr
    assert "Traceback" in home.rota("job", "list", env={"ROTA_DEBUG": "1"}).stderr


def test_the_manual_has_every_exit_code_and_command() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert all(f"| {code} | {meaning} |" in manual for code, meaning in EXIT_CODES)
    commands = [
        "up",
        "node",
        *(f"store {verb}" for verb in ("migrate", "restored", "check")),
        *(f"run {verb}" for verb in ("list", "show", "explain", "logs", "cancel", "retry")),
        *(f"{noun} {verb}" for noun in ("tenant", "limit") for verb in ("set", "list", "remove")),
        *(f"node {verb}" for verb in ("list", "drain", "undrain", "sweep")),
        *(f"cluster {verb}" for verb in ("show", "rebalance", "pause", "resume", "doctor", "dump")),
        "config show",
    ]
    verbs = ("apply", "list", "show", "preview", "pause", "resume", "trigger", "delete", "claim", "release")
    for command in [*commands, *(f"job {verb}" for verb in verbs)]:
        assert f"`rota {command}" in manual
