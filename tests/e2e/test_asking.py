"""`rota tenant`, `rota limit`, `rota node`, and what can be asked of runs: what each command does and prints."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import click
import pytest

from rota.cli.main import run
from tests.e2e.rig import Home, Terminal, until

APP = """
import rota

app = rota.App()


@app.task(retries=1)
def shout(word="hello"):
    print(word, flush=True)
    if word == "no":
        raise ValueError("I will not")
    return {"said": word}
"""


def test_tenants_are_set_listed_and_removed(stored: Home) -> None:
    """S2.21."""
    assert "no tenants" in stored.ok("tenant", "list")
    said = stored.ok("tenant", "set", "acme", "--cap", "5", "--rate", "10/60")
    assert said == "quota default of tenant acme: at most 5 at a time, 10 starts in 1 min, weight 1\n"
    changed = stored.json("tenant", "set", "acme", "--weight", "3", "--rate", "none")
    assert changed == {
        "tenant": "acme",
        "quota": "default",
        "name": "quota:acme/default",
        "cap": 5,
        "weight": 3,
        "rate": None,
    }
    stored.json("tenant", "set", "acme", "--quota", "mail", "--cap", "none")
    assert stored.json("tenant", "list") == [
        {
            "tenant": "acme",
            "quota": quota,
            "is_set": True,
            "cap": cap,
            "weight": weight,
            "rate": None,
            "ready": 0,
            "running": 0,
        }
        for quota, cap, weight in (("default", 5, 3), ("mail", None, 1))
    ]
    assert "acme    mail     none  1" in stored.ok("tenant", "list")
    assert stored.ok("tenant", "remove", "acme") == "tenant acme is removed, with 2 quotas\n"
    assert "there is no tenant acme; see: rota tenant list" in stored.refused(3, "tenant", "remove", "acme")


def test_a_tenant_with_unfinished_items_is_removed_only_when_told_so(stored: Home) -> None:
    stored.json("tenant", "set", "default")
    stored.json("job", "trigger", "by-hand")
    said = stored.refused(4, "tenant", "remove", "default")
    assert "tenant default has 1 unfinished items in 1 runs" in said
    assert "rota tenant remove default --cancel" in said
    done = stored.json("tenant", "remove", "default", "--cancel")
    assert done == {"tenant": "default", "quotas": ["default"], "items_cancelled": 1, "items_asked_to_stop": 0}
    assert stored.json("run", "list")[0]["state"] == "cancelled"


def test_limits_are_set_listed_and_removed(stored: Home) -> None:
    assert "global  100  -" in stored.ok("limit", "list")
    assert stored.ok("limit", "set", "global", "--cap", "20") == "global: at most 20 at a time\n"
    stored.json("limit", "set", "resource:db", "--rate", "1/0.5")
    assert stored.json("limit", "list") == [
        {"name": "global", "cap": 20, "weight": 1, "rate": None},
        {"name": "resource:db", "cap": None, "weight": 1, "rate": {"max": 1, "period_s": 0.5}},
    ]
    assert stored.ok("limit", "remove", "resource:db") == "resource:db is removed\n"
    assert "global is back to its default, at most 100" in stored.ok("limit", "remove", "global")
    assert "there is no limit resource:db" in stored.told(3, "limit", "remove", "resource:db")


def test_a_run_can_be_explained_cancelled_and_run_again_without_any_node(stored: Home) -> None:
    first = stored.json("job", "trigger", "by-hand", "--param", "region=us")["id"]
    second = stored.json("job", "trigger", "by-hand", "--param", "region=us")["id"]
    assert "no node is running: start one" in stored.ok("run", "explain", str(first))
    (reason,) = stored.json("run", "explain", str(first))["reasons"]
    assert (reason["why"], reason["task"], reason["until_at"]) == ("no_executor", "main", None)
    waiting = stored.json("run", "explain", str(second))
    assert waiting["state"] == "waiting"
    assert waiting["reasons"][0]["text"].endswith(f"for run {first} to end")
    assert "[no attempt was made yet]" in stored.rota("run", "logs", str(first)).stderr
    assert f"run {first} has not ended" in stored.told(4, "run", "retry", str(first))
    said = stored.ok("run", "cancel", str(first), str(second))
    assert f"run {first} (by-hand) is cancelled" in said
    assert "2 items cancelled, 0 asked to stop" in said
    again = stored.json("run", "retry", str(first))
    assert (again["cause"], again["key"], again["params"]) == ("rerun", f"{first}.1", {"region": "us"})
    cancelled = stored.json("run", "cancel", str(again["id"]))
    assert [it["state"] for it in cancelled["runs"]] == ["cancelled"]
    assert f"it repeats run {first}" in stored.ok("run", "retry", str(first), "--same-version")


def test_what_is_not_there_is_told(stored: Home) -> None:
    for verb in ("show", "explain", "logs", "cancel", "retry"):
        assert "there is no run 999; see: rota run list" in stored.told(3, "run", verb, "999")


def test_a_run_is_shown_with_its_items_attempts_and_output(home: Home) -> None:
    home.write("app.py", APP)
    with home.start("node", "start", "--app", "app.py", "--name", "berlin") as node:
        node.says("job.created")
        good = str(home.json("job", "trigger", "shout", "--param", "word=good morning")["id"])
        assert home.ok("run", "logs", good, "-f") == "good morning\n"
        assert home.ok("run", "logs", good, "--item", "0", "--attempt", "1") == "good morning\n"
        shown = ended(home, good)
        assert (shown["state"], shown["items"][0]["state"]) == ("succeeded", "succeeded")
        assert shown["items"][0]["result"] == {"said": "good morning"}
        assert [(it["outcome"], it["node"], it["log_bytes"]) for it in shown["attempts"]] == [
            ("succeeded", "berlin", len("good morning\n"))
        ]
        bad = str(home.json("job", "trigger", "shout", "--param", "word=no")["id"])
        assert [it["outcome"] for it in ended(home, bad)["attempts"]] == ["failed", "failed"]
        text = home.ok("run", "show", bad)
        assert "ValueError: I will not" in text
        assert "berlin" in text
        assert "ValueError: I will not" in home.ok("run", "logs", bad)
        assert "the run is over: failed at" in home.ok("run", "explain", bad)
        lines = [json.loads(line) for line in home.ok("run", "logs", good, "--json").splitlines()]
        assert [(line["offset"], line["text"]) for line in lines] == [(0, "good morning\n")]
        seen = home.json("node", "list")
        assert [(it["name"], it["state"], it["group"], it["seats"]) for it in seen] == [
            ("berlin", "online", "default", 16)
        ]
        assert "default/default/shout" in seen[0]["handlers"]
    assert "online" in home.ok("node", "list"), "a node that was killed is believed alive until its lease is over"


def ended(home: Home, run_id: str) -> Any:
    """A run, when it has ended."""
    home.rota("run", "logs", run_id, "-f")
    until(lambda: home.json("run", "show", run_id)["ended_at"])
    return home.json("run", "show", run_id)


def test_nodes_are_drained_by_name_and_for_good(stored: Home) -> None:
    assert "no nodes; start one with: rota node" in stored.ok("node", "list")
    said = stored.ok("node", "drain", "berlin", "paris", "berlin")
    assert said.splitlines() == [
        f"{name} is on the offline list; no node of that name is here now" for name in ("berlin", "paris")
    ]
    with stored.start("node", "start", "--name", "berlin", "--seconds", "60") as node:
        node.says("node.joined")
        assert [it["state"] for it in stored.json("node", "list")] == ["draining"]
        undrained = stored.json("node", "undrain", "berlin")
        assert undrained == [{"name": "berlin", "drained": False, "state": "online"}]
    assert [it["name"] for it in stored.json("node", "list", "--all")] == ["berlin"]


def test_a_sweep_leaves_the_living_alone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_EXECUTOR_STATE_PATH", str(home.path / "state"))
    home.env["ROTA_EXECUTOR_STATE_PATH"] = str(home.path / "state")
    assert home.ok("node", "sweep") == "0 former nodes swept, 0 alive\n"
    with home.start("node", "start", "--name", "berlin") as node:
        node.says("node.joined")
        assert home.json("node", "sweep") == {"gone": [], "living": 1, "unreadable": []}
    gone = home.json("node", "sweep")["gone"]
    assert [(it["node"], it["trees_cleared"]) for it in gone] == [("berlin", 0)]


def test_what_is_printed_fits_a_narrow_terminal(stored: Home) -> None:
    stored.json("tenant", "set", "acme", "--cap", "5", "--rate", "10/60")
    run_id = str(stored.json("job", "trigger", "by-hand")["id"])
    for command in (["tenant", "list"], ["limit", "list"], ["run", "explain", run_id], ["run", "show", run_id]):
        with Terminal(stored, *command, columns=60) as terminal:
            assert terminal.ends() == 0
            plain = click.unstyle(terminal.shown)
            assert all(len(line.rstrip()) <= 60 for line in plain.splitlines()), plain


BAD: list[tuple[str, list[str], str]] = [
    ("tenant-name", ["tenant", "set", "a b"], "tenant: the name must be"),
    ("tenant-quota", ["tenant", "set", "acme", "--quota", "!"], "quota: the name must be"),
    ("tenant-cap", ["tenant", "set", "acme", "--cap", "many"], "--cap: must be a whole number from 0 to 1000000"),
    ("tenant-cap-below", ["tenant", "set", "acme", "--cap", "-1"], "--cap: must be a whole number"),
    ("tenant-cap-above", ["tenant", "set", "acme", "--cap", "1000001"], "--cap: must be a whole number"),
    ("tenant-weight", ["tenant", "set", "acme", "--weight", "0"], "--weight: 0 is not in the range"),
    ("tenant-rate", ["tenant", "set", "acme", "--rate", "fast"], "--rate: must be starts and seconds like 10/60"),
    ("tenant-rate-none", ["tenant", "set", "acme", "--rate", "0/5"], "--rate: must be a whole number from 1"),
    ("tenant-rate-period", ["tenant", "set", "acme", "--rate", "1/0"], "--rate: must be a number of seconds"),
    ("tenant-rate-nan", ["tenant", "set", "acme", "--rate", "1/nan"], "--rate: must be a number of seconds"),
    ("limit-name", ["limit", "set", "nose", "--cap", "1"], "name: must be global or resource:NAME, not 'nose'"),
    ("limit-quota", ["limit", "set", "quota:a/b", "--cap", "1"], "name: quotas belong to tenants"),
    ("limit-resource", ["limit", "set", "resource:", "--cap", "1"], "resource: the name must be"),
    ("limit-nothing", ["limit", "set", "global"], "say what to set: --cap or --rate"),
    ("limit-global-none", ["limit", "set", "global", "--cap", "none"], "cap: the global limit must have one"),
    ("limit-remove", ["limit", "remove", "job:5"], "name: must be global or resource:NAME"),
    ("cancel-nothing", ["run", "cancel"], "Missing argument"),
    ("cancel-word", ["run", "cancel", "x"], "'x' is not a valid integer range"),
    ("retry-zero", ["run", "retry", "0"], "0 is not in the range"),
    ("logs-item", ["run", "logs", "1", "--item", "-1"], "--item: -1 is not in the range"),
    ("logs-attempt", ["run", "logs", "1", "--attempt", "0"], "--attempt: 0 is not in the range"),
    ("drain-nothing", ["node", "drain"], "Missing argument"),
    ("drain-name", ["node", "drain", "a b"], "name: the name must be"),
    ("node-verb", ["node", "explode"], "No such command 'explode'"),
]


@pytest.mark.parametrize(("arguments", "said"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_the_error_names_the_option_and_the_reason(
    stored: Home, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with contextlib.chdir(stored.path):
        assert run(arguments) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.startswith("error: ")
    assert stored.json("tenant", "list") == []
