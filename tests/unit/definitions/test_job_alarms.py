"""Who is told of a job, as its definition says it: in YAML and Python, for a job, a file and an app."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Any

import pytest

import rota
from rota.clock import SystemClock
from rota.control import Control
from rota.definitions.alarm import job_alarms, written
from rota.definitions.yaml import read_yaml
from rota.model.alarm import AlarmKind
from rota.model.job import Definition
from rota.storage.memory import MemoryStore

TODAY = date(2026, 1, 1)
FILE = """
alarms: [{mail: ops@example.com, kinds: [failure]}]
jobs:
  plain: {shell: ["true"]}
  own: {shell: ["true"], alarms: [{command: [page, now]}, {webhook: "https://example.com/hook", merge_s: 0}]}
  quiet: {shell: ["true"], alarms: []}
"""


def told(definition: Definition) -> list[tuple[str, tuple[str, ...]]]:
    return [(str(it.channel.kind), it.channel.to) for it in definition.alarms]


def test_a_job_has_its_own_alarms_or_those_of_its_file() -> None:
    plain, own, quiet = read_yaml(FILE, file=None, today=TODAY)
    assert told(plain) == [("mail", ("ops@example.com",))]
    assert plain.alarms[0].kinds == (AlarmKind.RUN_FAILED, AlarmKind.EXHAUSTED, AlarmKind.JOB_PAUSED)
    assert told(own) == [("command", ("page", "now")), ("webhook", ("https://example.com/hook",))]
    assert told(quiet) == []


def test_a_task_has_its_own_alarms_or_those_of_its_app() -> None:
    app = rota.App(alarms=[{"mail": "ops@example.com"}])
    app.task(name="plain")(print)
    app.task(name="own", alarms=[{"job": "cry", "kinds": ["lateness", "run_failed"]}])(print)
    plain, own = app.definitions(TODAY)
    assert told(plain) == [("mail", ("ops@example.com",))]
    assert told(own) == [("job", ("default/default/cry",))]
    assert AlarmKind.MISSED_SLOT in own.alarms[0].kinds


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("ops@example.com", "must be a list"),
        (["ops@example.com"], "entry 0 must be a mapping"),
        ([{}], "entry 0 must name one channel"),
        ([{"mail": "a@b.c", "job": "x"}], "entry 0 must name one channel"),
        ([{"mail": "a@b.c"}, {"mail": "nobody"}], "entry 1: mail: must be one mail address"),
        ([{"mail": "a@b.c", "kinds": ["failures"]}], "entry 0: kinds: must be one of .* did you mean failure"),
        ([{"mail": "a@b.c", "scope": "cluster"}], "entry 0: .*scope.* is not a known key"),
        ([{"mail": "a@b.c", "secret": "x" * 20}], "entry 0: secret goes only with webhook"),
        ([{"mail": "a@b.c"}, {"mail": "a@b.c", "kinds": ["failure"]}], "entry 1 has the same mail"),
        ([{"mail": "a@b.c", "kinds": [["failure"]]}], "entry 0: kinds: must be one of .* not a list"),
        ([{"mail": "a@b.c", "kinds": ["failure", "failure"]}], "entry 0: kinds: names failure twice"),
        ([{"command": "page now"}], "entry 0: command: must be a list like"),
    ],
)
def test_what_is_wrong_is_said_with_its_entry(wrong: Any, reason: str) -> None:
    with pytest.raises(rota.InvalidInput, match=f"^alarms: {reason}"):
        rota.App(alarms=wrong)
    with pytest.raises(rota.InvalidInput, match=rf"^job\.alarms: {reason}"):
        rota.App().task(name="job", alarms=wrong)(print)


def test_what_is_written_again_reads_the_same() -> None:
    _, own, _ = read_yaml(FILE, file=None, today=TODAY)
    assert job_alarms([written(it) for it in own.alarms]) == own.alarms


def test_the_rules_of_a_job_come_change_and_go_with_its_definition() -> None:
    async def main() -> None:
        control = Control(MemoryStore(SystemClock(), actor="test"), SystemClock())
        await control.alarms.set("mail", "boss@example.com", scope="job/default/default/own")
        definitions = read_yaml(FILE, file=None, today=TODAY)
        await control.jobs.apply(definitions)
        rules = {it.rule.name: it.rule for it in await control.alarms.states()}
        assert sorted(str(it.channel.kind) for it in rules.values() if it.defined) == ["command", "mail", "webhook"]
        (hook,) = [it for it in rules.values() if it.channel.kind == "webhook"]
        assert (hook.scope, len(hook.channel.secret) >= 16) == ("job/default/default/own", True)
        await control.jobs.apply(definitions)
        assert {it.rule.name: it.rule for it in await control.alarms.states()} == rules, (
            "the second time changes nothing"
        )
        changed = read_yaml(FILE.replace("merge_s: 0", "merge_s: 5"), file=None, today=TODAY)
        await control.jobs.apply(changed)
        (later,) = [it.rule for it in await control.alarms.states() if it.rule.channel.kind == "webhook"]
        assert (later.merge_s, later.channel.secret, later.since_at) == (5, hook.channel.secret, hook.since_at)
        for ask in (control.alarms.remove(hook.name), control.alarms.set("mail", "a@b.c", name=hook.name)):
            with pytest.raises(rota.Refused, match="belongs to the definition of the job default/default/own"):
                await ask
        await control.jobs.apply(read_yaml(FILE.replace("{command: [page, now]}, ", ""), file=None, today=TODAY))
        assert not [it for it in await control.alarms.states() if it.rule.channel.kind == "command"]
        await control.jobs.delete([definitions[1].full_name])
        left = [(it.rule.defined, it.rule.channel.to) for it in await control.alarms.states()]
        assert sorted(left) == [(False, ("boss@example.com",)), (True, ("ops@example.com",))]

    asyncio.run(main())
