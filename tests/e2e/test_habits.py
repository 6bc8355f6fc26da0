"""What people type out of habit, what they get wrong, and what they are told then."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from dataclasses import dataclass

import pytest

from rota.cli.serve import tally
from rota.config import unknown_variables
from rota.execution.environment import of_program
from tests.e2e.rig import JOBS, Home, Terminal
from tests.factories import an_attempt
from tests.servers.postgres import PostgresDatabases


@pytest.mark.parametrize("words", [(), ("job",), ("run",), ("cluster",)])
def test_a_group_without_a_command_shows_its_help(home: Home, words: tuple[str, ...]) -> None:
    said = home.refused(2, *words)
    assert said.startswith("Usage: rota")
    assert "\nCommands:\n" in said
    assert max(map(len, said.splitlines())) <= 100
    (problem,) = json.loads(home.refused(2, *words, "--json"))["error"]["problems"]
    assert problem["reason"] == "a command is missing"


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["jbo", "list"], "job"), (["job", "aply"], "apply"), (["run", "lst"], "list"), (["node", "strat"], "start")],
)
def test_a_wrong_command_gets_the_nearest_ones(home: Home, words: list[str], meant: str) -> None:
    said = home.refused(2, *words)
    assert re.search(rf"No such command '\w+'\. Did you mean .*\b{meant}\b.*\?", said)


def test_habits_of_other_tools_work(home: Home) -> None:
    home.write("jobs.yaml", JOBS)
    home.ok("store", "migrate")
    home.ok("apply", "jobs.yaml")
    home.ok("job", "pause", "beat", "nightly")
    assert home.ok("ls") == home.ok("job", "ls") == home.ok("job", "list")
    assert home.ok("ps") == home.ok("run", "list")
    assert home.ok("nodes") == home.ok("node", "list")
    assert home.ok("status").splitlines()[0] == home.ok("cluster", "show").splitlines()[0]
    home.ok("job", "rm", "beat", "--yes")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_learns_the_words(home: Home, shell: str) -> None:
    assert "_ROTA_COMPLETE" in home.ok("completion", shell)
    at = "jo" if shell == "fish" else "1"
    done = home.rota(env={"_ROTA_COMPLETE": f"{shell}_complete", "COMP_WORDS": "rota jo", "COMP_CWORD": at})
    assert "job" in done.stdout


@pytest.mark.parametrize(("group", "word"), [("node", "drain"), ("sim", "scale"), ("job", "apply"), ("store", "check")])
def test_a_shell_learns_the_words_of_a_group(home: Home, group: str, word: str) -> None:
    done = home.rota(env={"_ROTA_COMPLETE": "bash_complete", "COMP_WORDS": f"rota {group} ", "COMP_CWORD": "2"})
    assert word in done.stdout
    assert done.stderr == ""


def test_options_without_a_command_still_start_a_node_and_say_what_to_write(home: Home) -> None:
    with home.start("node", "--name", "old") as node:
        node.says("node.started")
        node.send(signal.SIGTERM)
        assert node.ends() == 0
    assert node.log.startswith("warning: write 'rota node start'")
    assert "warning: write" not in home.rota("node", "start", "--seconds", "1").stderr


def test_a_simulation_is_run_by_its_name_and_by_its_options_alone(home: Home) -> None:
    options = ("--seed", "1", "--placement", "claim", "--mode", "safety", "--jobs", "1")
    named = home.rota("sim", "run", *options)
    assert (named.returncode, "warning: write" in named.stderr) == (0, False), named.stderr
    bare = home.rota("sim", *options)
    assert bare.returncode == 0
    assert bare.stderr.startswith("warning: write 'rota sim run'")


def test_a_url_may_say_postgres(home: Home, postgres_server: PostgresDatabases) -> None:
    url = postgres_server.url(asyncio.run(postgres_server.create_database()))
    short = url.replace("postgresql://", "postgres://")
    assert short != url
    with home.start("node", "start", "--store", short) as node:
        node.says("scheduler.joined", within_s=90)
        for name in (short, url):
            assert [it["state"] for it in home.json("node", "list", "--store", name)] == ["online"]
        node.send(signal.SIGTERM)
        assert node.ends(60) == 0


@dataclass
class Counted:
    """What a scheduler has counted."""

    fired: int = 0
    missed: int = 0
    skipped: int = 0


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        (Counted(fired=12, missed=127), "12 ran, 127 missed"),
        (Counted(), "0 ran"),
        (Counted(fired=1, missed=2, skipped=3), "1 ran, 2 missed, 3 skipped"),
    ],
)
def test_what_was_done_is_told_in_words(counted: Counted, words: str) -> None:
    assert tally(counted) == words


def test_a_variable_that_is_no_setting_is_told_of_with_the_nearest_one(home: Home) -> None:
    done = home.rota("config", "show", env={"ROTA_EXECUTOR_SEAT": "3", "ROTA_SERVICE_HOST": "10.0.0.1"})
    assert done.stderr == "warning: ROTA_EXECUTOR_SEAT is no setting of rota; did you mean ROTA_EXECUTOR_SEATS?\n"


def test_what_rota_sets_for_tasks_and_kubernetes_for_services_is_known() -> None:
    attempt = an_attempt(runner="shell", params={"Region": "eu"}, number="7", info="x")
    ours = of_program(attempt, {}, "/result")
    kubernetes = ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_API", "PORT", "PORT_7700_TCP", "PORT_7700_TCP_ADDR"]
    theirs = [f"ROTA_{name}" for name in kubernetes] + [f"ROTA_API_{name}" for name in kubernetes]
    assert unknown_variables({**ours, **dict.fromkeys(theirs, "x")}) == []


SLOW = """
import time
import rota

app = rota.App()

@app.task(every_s=1)
def slow():
    print("begun", flush=True)
    time.sleep(60)

@app.task(every_s=86400)
def broken(text: str = "why"):
    raise ValueError("first line\\n" + text * 100)
"""


def test_the_first_ctrl_c_says_what_it_waits_for_and_the_second_is_no_bug(home: Home) -> None:
    home.write("app.py", SLOW)
    with Terminal(home, "up", "app.py") as terminal:
        terminal.shows("running")
        terminal.interrupt()
        terminal.shows("stopping: waits for run 1 (slow) to end; once more ends it at once")
        view, _, after = terminal.shown.rpartition("\x1b[?1049l")
        assert "stopping: waits" not in view, "what stands in the view is gone with it"
        assert "stopping: waits" in after
        terminal.interrupt()
        assert terminal.ends() == 130
    assert "interrupted" in terminal.shown
    assert "bug" not in terminal.shown


def test_a_log_says_what_a_node_waits_for(home: Home) -> None:
    home.write("app.py", SLOW)
    with home.start("node", "start", "--app", "app.py") as node:
        node.says("node.joined")
        node.until(lambda: home.json("run", "list", "--state", "running"))
        node.send(signal.SIGTERM)
        node.says("stopping: waits for run 1 (slow) to end")
        node.send(signal.SIGTERM)
        assert node.ends() == 130


def test_run_ids_rise_whoever_makes_the_run(home: Home) -> None:
    home.write("jobs.yaml", JOBS)
    home.ok("store", "migrate")
    home.ok("job", "apply", "jobs.yaml")
    with home.start("node", "start", "--seats", "0") as node:
        node.says("scheduler.joined")
        made = [home.json("job", "trigger", "beat")["id"] for _ in range(3)]
    assert made == sorted(made)
    ids = [run["id"] for run in home.json("run", "list", "--limit", "1000")]
    assert ids == list(range(len(ids), 0, -1))


def test_what_has_not_started_waits_and_explain_names_the_setting(home: Home) -> None:
    home.write("jobs.yaml", JOBS)
    home.ok("store", "migrate")
    home.ok("job", "apply", "jobs.yaml")
    with home.start("node", "start", "--name", "berlin", "--seats", "0") as node:
        node.says("node.joined")
        run = home.json("job", "trigger", "by-hand")["id"]
        assert home.json("run", "show", str(run))["state"] == "waiting"
        assert run in [it["id"] for it in home.json("run", "list", "--job", "by-hand", "--state", "waiting")]
        assert home.json("run", "list", "--state", "running") == []
        assert "executor.seats of node berlin is 0" in home.ok("run", "explain", str(run))


def test_up_finds_the_modules_beside_its_file(home: Home) -> None:
    home.write("work/helpers.py", "import more.deep\n\ndef work():\n    print(more.deep.TEXT)\n")
    home.write("work/more/__init__.py", "")
    home.write("work/more/deep.py", "TEXT = 'from beside'\n")
    home.write("work/jobs.yaml", "jobs:\n  job:\n    every_s: 1\n    python: helpers:work\n")
    with home.start("up", "work/jobs.yaml") as up:
        up.says("node.joined")
        up.until(lambda: home.json("run", "list", "--state", "succeeded"))
    run = home.json("run", "list", "--state", "succeeded")[-1]["id"]
    assert home.ok("run", "logs", str(run)) == "from beside\n"


def test_a_failed_run_says_why_whole_wherever_it_is_asked(home: Home) -> None:
    home.write("app.py", SLOW)
    with home.start("node", "start", "--app", "app.py") as node:
        node.says("scheduler.joined")
        node.until(lambda: "broken" in [it["name"] for it in home.json("job", "list")])
        run = str(home.json("job", "trigger", "broken")["id"])
        node.until(lambda: home.json("run", "show", run)["state"] == "failed")
        whole = "first line\n" + "why" * 100
        explained = " ".join(home.ok("run", "explain", run).split())
        assert "attempt 1 on node" in explained
        assert whole.replace("\n", " ") in explained
        assert whole in home.ok("run", "show", run)
        done = home.rota("run", "logs", run)
        assert f"[attempt 1 failed: ValueError: {whole}]" in done.stderr
        assert re.search(r"\d/16 ", home.ok("node", "list"))
