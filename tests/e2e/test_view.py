"""The live view fits the terminal, whatever it has to show."""

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from rota.cli.watch import Picture, render
from rota.model.job import Job
from rota.model.run import Run
from rota.model.states import Cause, RunState, SkipReason
from rota.model.trigger import Cron, Instant
from tests.factories import a_definition

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)


def seen(jobs: int, runs: int, **others: object) -> Picture:
    every = [a_job(number) for number in range(1, jobs + 1)]
    fired = [a_run(number, max(jobs, 1)) for number in range(1, runs + 1)]
    base = Picture(
        store="postgresql://rota:***@a-server-with-a-long-name.example.com:5432/" + "x" * 60,
        node="node-1",
        path="definitions",
        up_s=100_000,
        now=NOW,
        trouble="",
        jobs=every,
        jobs_more=False,
        runs=fired,
        names={job.id: job.definition.full_name for job in every},
        last={run.job_id: run for run in fired},
        tally="12 ran",
        lines=("2026-07-01T12:00:00.000000Z warning " + "a long line " * 20,) * 5,
        ended=False,
    )
    return base._replace(**others)  # type: ignore[arg-type]


def a_job(number: int) -> Job:
    rule = Cron(expression="0 3 * * mon-fri", zone="America/Argentina/ComodRivadavia")
    definition = a_definition(name=f"job-[{number}]-" + "n" * number, rule=rule)
    job = Job.created(number, definition, "digest", None, NOW)
    at = NOW + timedelta(hours=min(number, 60) ** 3)
    return job if number % 7 == 0 else job.armed(Instant(slot_at=at, due_at=at))


def a_run(number: int, jobs: int) -> Run:
    return Run(
        id=10**12 + number,
        job_id=number % jobs + 1,
        version=1,
        cause=Cause.SLOT,
        key="k",
        overlap_key="k",
        state=RunState.SKIPPED,
        reason=SkipReason.MISFIRE,
        slots=100,
        due_at=NOW - timedelta(days=number * 30),
        created_at=NOW,
    )


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("height", [16, 24, 50])
@pytest.mark.parametrize(("jobs", "runs"), [(0, 0), (1, 0), (3, 3), (60, 50)])
def test_nothing_wraps_and_nothing_runs_over(width: int, height: int, jobs: int, runs: int) -> None:
    console = Console(file=StringIO(), width=width, height=height, force_terminal=False)
    console.print(render(seen(jobs, runs), width, height))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert "Ctrl-C stops" in lines[-1]


def text_of(it: Picture, width: int = 100, height: int = 30) -> str:
    console = Console(file=StringIO(), width=width, height=height)
    console.print(render(it, width, height))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_an_outage_is_shown() -> None:
    assert "out of reach" in text_of(seen(1, 1, trouble="no answer"))
    assert "store reachable" in text_of(seen(1, 1))


def test_what_is_not_shown_is_counted() -> None:
    assert "… 52 more" in text_of(seen(60, 0), height=30)
    assert "500+ jobs" in text_of(seen(500, 0, jobs_more=True))


def test_empty_states_are_explained() -> None:
    assert "no jobs yet: put one into definitions" in text_of(seen(0, 0))
    assert "no runs yet: the first is due in 1h" in text_of(seen(2, 0))


def test_names_are_not_taken_for_markup() -> None:
    assert "job-[1]-n" in text_of(seen(1, 0))
