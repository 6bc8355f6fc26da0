"""`rota alarm`: rules, a test of a channel, and a node that tells by mail, webhook and command."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig import Home
from tests.servers.smtp import mail_server

pytestmark = pytest.mark.nightly  # each starts several nodes

FAILING = """
jobs:
  broken:
    every_s: 1
    pause_after: 2
    shell: ["sh", "-c", "exit 7"]
"""


async def until(condition: Callable[[], Any], within_s: float = 60.0) -> Any:
    """Wait for what another process does."""
    async with asyncio.timeout(within_s):
        while not (found := await asyncio.to_thread(condition)):
            await asyncio.sleep(0.1)
    return found


def test_rules_are_set_listed_changed_and_removed(home: Home) -> None:
    home.ok("store", "migrate")
    assert "nobody is told" in home.ok("alarm", "list")
    made = home.json("alarm", "set", "--mail", "ops@example.com", "--kind", "run_failed", "--kind", "missed_slot")
    assert (made["scope"], made["kinds"], made["merge_s"]) == ("cluster", ["run_failed", "missed_slot"], 60.0)
    again = home.json("alarm", "set", "--mail", "ops@example.com", "--merge-s", "5")
    assert (again["name"], again["kinds"], again["merge_s"]) == (made["name"], [], 5.0)
    other = home.json("alarm", "set", "--scope", "job/acme/p/j", "--command", "logger -t 'rota alarm'", "--name", "log")
    assert other["to"] == ["logger", "-t", "rota alarm"]
    table = home.ok("alarm", "list")
    assert "logger -t 'rota alarm'" in table
    assert [it["name"] for it in home.json("alarm", "list")] == sorted([made["name"], "log"])
    assert "is removed" in home.ok("alarm", "remove", "log")
    assert "there is no alarm rule log" in home.told(3, "alarm", "remove", "log")
    assert "there is no alarm rule log" in home.told(3, "alarm", "test", "log")
    assert "no alarms" in home.ok("alarm", "history")


def test_a_webhooks_secret_is_shown_once_and_kept(home: Home) -> None:
    home.ok("store", "migrate")
    first = home.json("alarm", "set", "--webhook", "https://example.com/hook")
    assert len(first["secret"]) >= 16
    assert first["secret"] not in home.ok("alarm", "list", "--json")
    again = home.json("alarm", "set", "--webhook", "https://example.com/hook", "--merge-s", "1")
    assert (again["name"], again["secret"]) == (first["name"], first["secret"])
    own = home.json("alarm", "set", "--webhook", "https://example.com/hook", "--secret", "0123456789abcdef")
    assert (own["name"], own["secret"]) == (first["name"], "0123456789abcdef")


@pytest.mark.parametrize(
    ("arguments", "field", "reason"),
    [
        ((), "", "one of --mail, --webhook, --command, --job"),
        (("--job", "a/b/c/d"), "job", "must be name, project/name"),
        (("--mail", "a@b.c", "--webhook", "http://x.y"), "", "one of --mail, --webhook, --command"),
        (("--mail", "nobody"), "mail", "one mail address"),
        (("--mail", "a@b.c,d@e.f"), "mail", "one mail address"),
        (("--mail", "a@b.c\nBcc: d@e.f"), "mail", "one mail address"),
        (("--webhook", "ftp://example.com"), "webhook", "http"),
        (("--webhook", "https://me:secret@example.com"), "webhook", "user or password"),
        (("--command", "sh -c 'unended"), "--command", "cannot be split"),
        (("--command", ""), "command", "1 to 1000"),
        (("--mail", "a@b.c", "--kind", "run_faild"), "kinds", "did you mean"),
        (("--mail", "a@b.c", "--kind", "test"), "kinds", "must be one of"),
        (("--mail", "a@b.c", "--kind", "recovered", "--kind", "recovered"), "kinds", "twice"),
        (("--mail", "a@b.c", "--scope", "tenant"), "scope", "must be cluster, tenant/T"),
        (("--mail", "a@b.c", "--scope", "job/a/b"), "scope", "must be cluster, tenant/T"),
        (("--mail", "a@b.c", "--scope", "tenant/ä"), "scope", "A-Z a-z 0-9"),
        (("--mail", "a@b.c", "--merge-s", "100000"), "merge_s", "86400"),
        (("--mail", "a@b.c", "--merge-s", "nan"), "--merge-s", "nan"),
        (("--mail", "a@b.c", "--name", "a b"), "name", "A-Z a-z 0-9"),
        (("--webhook", "https://example.com", "--secret", "short"), "secret", "16 to 200"),
    ],
)
def test_bad_input_names_its_field_and_stores_nothing(
    home: Home, arguments: tuple[str, ...], field: str, reason: str
) -> None:
    home.ok("store", "migrate")
    error = home.told(2, "alarm", "set", *arguments)
    assert f"error: {field}: " in error if field else "error: " in error
    assert reason in error
    assert home.count("rota_alarm_rule") == 0


async def test_a_test_says_what_came_back(home: Home, tmp_path: Path) -> None:
    async with mail_server() as box:
        home.env |= {"ROTA_ALARM_SMTP_HOST": "127.0.0.1", "ROTA_ALARM_SMTP_PORT": str(box.port)}
        await asyncio.to_thread(home.ok, "store", "migrate")
        for name, to in (("good", "ops@example.com"), ("bad", "nobody@example.com")):
            await asyncio.to_thread(home.ok, "alarm", "set", "--mail", to, "--name", name)
        answer = await asyncio.to_thread(home.ok, "alarm", "test", "good")
        assert "queued as 42" in answer
        (letter,) = box.letters
        assert letter["Subject"] == "rota: test: this is a test of the rule good"
        error = await asyncio.to_thread(home.refused, 5, "alarm", "test", "bad")
        assert "no such user here" in error
        assert len(box.letters) == 1


def test_the_password_of_the_mail_server_is_not_shown(home: Home) -> None:
    home.write("rota.toml", '[alarm]\nsmtp_password = "hidden-word"\n')
    for arguments in (("config", "show"), ("config", "show", "--json")):
        shown = home.ok(*arguments)
        assert "hidden-word" not in shown
        assert "***" in shown


async def test_a_node_tells_of_failures_and_of_the_pause_by_every_channel(home: Home) -> None:
    """A channel that fails and one that hangs do not keep the mails back."""
    home.write("jobs.yaml", FAILING)
    got = home.path / "got.jsonl"
    async with mail_server() as box:
        home.env |= {"ROTA_ALARM_SMTP_HOST": "127.0.0.1", "ROTA_ALARM_SMTP_PORT": str(box.port)}
        await asyncio.to_thread(home.ok, "store", "migrate")
        rules = (
            ("hangs", "--command", "sleep 1000"),
            ("fails", "--command", "false"),
            ("log", "--command", f"sh -c 'cat >> {got}'"),
            ("ops", "--mail", "ops@example.com"),
        )
        for name, way, to in rules:
            await asyncio.to_thread(home.ok, "alarm", "set", "--name", name, way, to, "--merge-s", "1")
        with home.start("node", "start", "--name", "a", "--definitions", "jobs.yaml") as node:
            letters = await box.until(2)
            await until(lambda: got.exists() and len(got.read_text().splitlines()) >= 2)
            node.send(signal.SIGTERM)
            assert await asyncio.to_thread(node.ends, 60) == 0
        subjects = " ".join(str(letter["Subject"]) for letter in letters)
        assert "run failed" in subjects
        assert "job paused: job broken is paused" in subjects
        kinds = {json.loads(line)["kind"] for line in got.read_text().splitlines()}
        assert {"run_failed", "job_paused"} <= kinds
        history = await asyncio.to_thread(home.json, "alarm", "history")
        assert {it["kind"] for it in history} >= {"run_failed", "job_paused"}
        states = {it["name"]: it for it in await asyncio.to_thread(home.json, "alarm", "list")}
        assert states["ops"]["last"]["arrived"]
        assert not states["fails"]["last"]["arrived"]
        assert "exit code 1" in states["fails"]["last"]["answer"]
        assert states["hangs"]["pending"] >= 1


async def test_a_node_starts_the_job_that_is_to_be_told(home: Home) -> None:
    pager = '  pager:\n    shell: ["true"]\n'
    home.write("jobs.yaml", FAILING + pager)
    await asyncio.to_thread(home.ok, "store", "migrate")
    await asyncio.to_thread(home.ok, "job", "apply", "jobs.yaml")
    await asyncio.to_thread(home.ok, "alarm", "set", "--job", "pager", "--kind", "job_paused", "--merge-s", "0")
    with home.start("node", "start", "--name", "a") as node:
        (run,) = await until(lambda: home.json("run", "list", "--job", "pager", "--state", "succeeded"))
        node.send(signal.SIGTERM)
        assert await asyncio.to_thread(node.ends, 60) == 0
    assert run["params"]["alarm"]["kind"] == "job_paused"
    assert run["params"]["alarm"]["first"][0]["scope"] == "job/default/default/broken"
