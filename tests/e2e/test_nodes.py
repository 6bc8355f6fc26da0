"""`rota up` and `rota node`: what they do while they run, and how they stop."""

import json
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.rig import JOBS, ROTA, Home, Process, Terminal, until


def test_up_makes_a_store_applies_the_file_and_fires(home: Home) -> None:
    home.write("jobs.yaml", JOBS)
    with home.start("up", "jobs.yaml") as process:
        process.says("job.created job=beat")
        process.until(lambda: len(home.json("run", "list", "--job", "beat")) >= 2)
        process.send(signal.SIGTERM)
        assert process.ends() == 0, process.log
    runs = home.json("run", "list", "--job", "beat")
    assert all(run["cause"] == "slot" and run["lateness_s"] >= 0 for run in runs)


def test_up_stops_at_wrong_definitions_and_stores_nothing(home: Home) -> None:
    home.write("jobs/a.yaml", "jobs: {a: {every_s: 5, shell: [ls]}}")
    home.write("jobs/b.yaml", "jobs: {b: {cron: nonsense, shell: [ls]}}")
    assert "b.yaml:1: jobs.b.cron: " in home.refused(2, "up", "jobs")
    assert home.count("rota_job") == 0
    assert "there is no file or folder nowhere.yaml" in home.refused(2, "up", "nowhere.yaml")


def test_up_writes_log_lines_as_json(home: Home) -> None:
    home.write("app.py", "import rota\napp = rota.App()\n@app.task\ndef hello(): ...\n")
    done = home.rota("up", "app.py", "--seconds", "0.5", "--log-format", "json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    others = ("scheduler.joined", "node.port_taken")  # it may not get that far; or be alone
    told = [line["event"] for line in lines if line["level"] == "info" and line["event"] not in others]
    assert told == ["job.created", "node.started", "node.joined", "node.stopped"]
    assert {"at", "level", "event"} <= set(lines[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "command", [("up", "jobs.yaml"), ("node", "start", "--definitions", "jobs.yaml")], ids=["up", "node"]
)
def test_a_signal_ends_it_gracefully(home: Home, command: tuple[str, ...], number: signal.Signals) -> None:
    home.write("jobs.yaml", JOBS)
    with home.start(*command) as process:
        process.says("store=sqlite:///rota.db")
        process.send(number)
        assert process.ends() == 0
        assert "node.stopped" in process.log
        assert "Traceback" not in process.log


def test_a_third_signal_ends_it_at_once(home: Home) -> None:
    home.write("jobs.yaml", JOBS)
    with home.start("node", "start", "--definitions", "jobs.yaml") as process:
        process.says("job.created", times=3)
        with sqlite3.connect(home.path / "rota.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            time.sleep(2)  # a slot is due every second: the node waits for the lock now, and cannot end its round
            while not process.has_ended:  # signals that come at once are one: it may see some of them only
                process.send(signal.SIGINT)
                time.sleep(0.2)
            assert process.ends() == 130
        other.close()
    assert "interrupted" not in process.log, "the second signal alone would have ended it with a word"


def test_a_node_picks_up_changes_of_its_folder_and_tells_of_a_broken_file(home: Home) -> None:
    home.write("defs/a.yaml", "jobs: {a: {every_s: 3600, shell: [ls]}}")
    with home.start("node", "start", "--name", "n1", "--definitions", "defs") as process:
        process.says("job.created job=a")
        home.write("defs/b.yaml", "jobs: {b: {every_s: 3600, shell: [ls]}}")
        process.says("job.created job=b")
        home.write("defs/a.yaml", "jobs: {a: {every_s: 7200, shell: [ls]}}")
        process.says("job.changed job=a")
        home.write("defs/c.yaml", "jobs: {c: {every_s: nonsense, shell: [ls]}}")
        home.write("defs/d.yaml", "jobs: {d: {every_s: 3600, shell: [ls]}}")
        process.says("job.created job=d")
        process.says("defs/c.yaml:1: jobs.c.every_s: ")
        process.send(signal.SIGTERM)
        assert process.ends() == 0
    assert [job["name"] for job in home.json("job", "list")] == ["a", "b", "d"]
    assert home.json("job", "show", "a")["history"][0]["actor"] == "n1"


def test_a_node_without_definitions_fires_what_is_stored(stored: Home) -> None:
    with stored.start("node", "start", "--json") as process:
        process.until(lambda: stored.count("rota_run"))
        process.send(signal.SIGTERM)
        assert process.ends() == 0, process.log
    assert json.loads(process.log.splitlines()[-1])["fired"] >= 1


def test_three_nodes_that_start_together_on_an_empty_store_migrate_it_once(home: Home) -> None:
    home.write("jobs.yaml", JOBS)
    with (
        home.start("node", "start", "--definitions", "jobs.yaml") as first,
        home.start("node", "start", "--definitions", "jobs.yaml") as second,
        home.start("node", "start", "--definitions", "jobs.yaml") as third,
    ):
        for process in (first, second, third):
            process.says("node.started")
        until(lambda: home.count("rota_run") >= 3)
        for process in (first, second, third):
            process.send(signal.SIGTERM)
            assert process.ends() == 0
            assert "loop.failed" not in process.log
    assert home.count("rota_schema") == 1
    assert home.count("rota_job") == 3
    slots = [(run["job"], run["slot_at"]) for run in home.json("run", "list", "--limit", "1000")]
    assert len(slots) == len(set(slots))


def test_a_node_waits_for_its_store_and_can_be_stopped_meanwhile(home: Home) -> None:
    with home.start("node", "start", "--store", "postgresql://me:s3cret@127.0.0.1:1/x") as process:
        process.says("store.awaited", times=2)
        process.send(signal.SIGTERM)
        assert process.ends() == 0
        assert "s3cret" not in process.log


def test_a_node_refuses_a_store_that_forgets(home: Home) -> None:
    said = home.refused(6, "node", "start", "--store", "sqlite:///rota.db?synchronous=OFF")
    assert "could lose what it has acknowledged" in said
    assert "forgets everything" in home.refused(6, "node", "start", "--store", "memory:")


def test_a_terminal_gets_a_live_view_that_ctrl_c_ends(home: Home) -> None:
    home.write("jobs.yaml", JOBS)
    with Terminal(home, "up", "jobs.yaml") as terminal:
        for text in ("store", "reachable", "JOB", "TRIGGER", "beat", "every 1 s", "Ctrl-C stops", "LATE"):
            terminal.shows(text)
        terminal.interrupt()
        assert terminal.ends() == 0
        assert "stopped; " in terminal.shown
        assert "Traceback" not in terminal.shown


def test_an_empty_folder_is_explained(home: Home) -> None:
    (home.path / "defs").mkdir()
    with Terminal(home, "up", "defs") as terminal:
        terminal.shows("no jobs yet: put one into defs")
        home.write("defs/a.yaml", "jobs: {later: {every_s: 1, shell: [ls]}}")
        terminal.shows("later")
        terminal.interrupt()
        assert terminal.ends() == 0


def test_a_node_raises_its_limit_of_open_files_and_its_programs_get_the_one_it_was_given(home: Home) -> None:
    home.write("jobs.yaml", 'jobs: {a: {every_s: 1, shell: [sh, -c, "ulimit -n; ulimit -Hn"]}}')
    command = ["prlimit", "--nofile=700:3000", ROTA, "up", "jobs.yaml"]
    with Process(command, home.path, home.env) as process:
        process.says("node.started")
        runs = process.until(lambda: home.json("run", "list", "--job", "a", "--state", "succeeded"))
        assert "Max open files            3000                 3000" in Path(f"/proc/{process.pid}/limits").read_text()
    assert home.ok("run", "logs", str(runs[0]["id"])).split()[-2:] == ["700", "3000"]


def test_too_few_open_files_are_one_error_that_names_the_limit_and_the_need(home: Home) -> None:
    home.write("jobs.yaml", JOBS)
    command = ["prlimit", "--nofile=256:256", ROTA, "up", "jobs.yaml", "--seconds", "5"]
    done = subprocess.run(command, cwd=home.path, env=home.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "open files" in line]
    assert "executor.seats: 16 seats need 384 open files, and the limit is 256" in line
    assert "Traceback" not in done.stderr


def test_a_node_that_cannot_write_its_state_rests_until_it_can(home: Home) -> None:
    home.write("jobs.yaml", 'jobs: {a: {shell: ["true"]}}')
    state = home.path / "state"
    home.env["ROTA_EXECUTOR_STATE_PATH"] = str(state)
    with home.start("up", "jobs.yaml") as process:
        process.says("scheduler.joined")
        state.rename(home.path / "away")
        process.says("node.unable")
        run = home.json("job", "trigger", "a")["id"]
        why = f"{state}/agent-"
        assert why in home.ok("run", "explain", str(run))
        said = home.rota("cluster", "doctor")
        assert said.returncode != 0
        assert why in said.stdout
        (home.path / "away").rename(state)
        process.says("node.able")
        process.until(lambda: home.json("run", "show", str(run))["state"] == "succeeded")
    assert [it["attempt"] for it in home.json("run", "show", str(run))["attempts"]] == [1]


@pytest.mark.nightly
def test_one_file_that_hangs_does_not_delay_the_jobs_of_the_others(home: Home) -> None:
    """The loads are tested in tests/unit/definitions; this is a node that makes them."""
    home.write("defs/fine.yaml", 'jobs: {fine: {every_s: 1, shell: ["true"]}}')
    home.write("defs/hangs.py", "import time\ntime.sleep(1000)\n")
    with home.start("node", "start", "--definitions", "defs") as process:
        process.says("hangs.py: is still being read after 5 s; the others do not wait for it")
        process.says("job.created")
