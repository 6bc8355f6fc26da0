"""`rota run`: what was fired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from rota.cli.given import LIMIT, RUN_ID
from rota.cli.lazy import Group
from rota.cli.output import as_json, coloured, facts, say_json, table
from rota.cli.session import Session, ask
from rota.cli.shapes import event_shape, item_shape, lateness, run_shape
from rota.cli.words import duration, reason, short
from rota.control import RunDetail, job_name
from rota.model.job import JobName
from rota.model.plan import RunFilter
from rota.model.run import Run
from rota.model.states import RunState


@click.group(cls=Group)
def run() -> None:
    """List and show what was fired."""


@run.command(name="list")
@click.option("--job", metavar="NAME", help="Only runs of this job.")
@click.option("--state", type=click.Choice([str(it) for it in RunState]), help="Only runs in this state.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="At most so many.")
@click.option("--before", metavar="ID", type=RUN_ID, help="Only runs older than this one.")
@click.pass_context
def list_(ctx: click.Context, job: str | None, state: str | None, limit: int, before: int | None) -> None:
    """List runs, newest first; --before with the last id pages on."""
    wanted = RunFilter(
        job=None if job is None else job_name(job),
        states=() if state is None else (RunState(state),),
        before_id=before,
        limit=limit + 1,
    )

    async def work(session: Session) -> tuple[tuple[Run, ...], dict[int, JobName]]:
        runs = await session.control.runs(wanted)
        return runs, await session.control.names(runs)

    runs, names = ask(ctx, work)
    if as_json(ctx):
        say_json([run_shape(it, names[it.job_id]) for it in runs[:limit]])
    else:
        _show_list(runs[:limit], names, more=len(runs) > limit)


def _show_list(runs: Sequence[Run], names: Mapping[int, JobName], *, more: bool) -> None:
    if not runs:
        print("no runs")
        return
    table(
        ["RUN", "JOB", "STATE", "REASON", "CAUSE", "DUE", "LATE"],
        [
            (
                str(it.id),
                str(names[it.job_id]),
                coloured(it.state),
                reason(it),
                str(it.cause),
                short(it.due_at),
                duration(max(lateness(it), 0)),
            )
            for it in runs
        ],
    )
    if more:
        print(f"there are more; go on with: --before {runs[-1].id}")


@run.command()
@click.argument("run_id", metavar="ID", type=RUN_ID)
@click.pass_context
def show(ctx: click.Context, run_id: int) -> None:
    """Show a run, its items and its history."""

    async def work(session: Session) -> RunDetail:
        return await session.control.run(run_id)

    detail = ask(ctx, work)
    if as_json(ctx):
        items, history = [item_shape(it) for it in detail.items], [event_shape(it) for it in detail.history]
        say_json({**run_shape(detail.run, detail.job), "items": items, "history": history})
    else:
        _show_run(detail)


def _show_run(detail: RunDetail) -> None:
    it = detail.run
    optional = [
        ("reason", reason(it)),
        ("slot", short(it.slot_at) if it.slot_at else ""),
        ("last slot", short(it.last_slot_at) if it.slots > 1 else ""),
        ("ended", short(it.ended_at) if it.ended_at else ""),
        ("cancel", f"asked at {short(it.cancel_at)}" if it.cancel_at else ""),
        ("params", ", ".join(f"{name}={value!r}" for name, value in it.params.items())),
    ]
    facts(
        [
            ("run", str(it.id)),
            ("job", f"{detail.job} (version {it.version})"),
            ("state", coloured(it.state)),
            ("cause", f"{it.cause} {it.key}"),
            ("due", short(it.due_at)),
            ("recorded", f"{short(it.created_at)} ({duration(max(lateness(it), 0))} late)"),
            *((name, value) for name, value in optional if value),
        ]
    )
    if detail.items:
        print("\nitems")
        rows = [(i.task, str(i.index), coloured(i.state), short(i.start_by_at)) for i in detail.items]
        table(["TASK", "INDEX", "STATE", "START BY"], rows)
    print("\nhistory")
    table(["AT", "WHAT", "BY", "DETAILS"], [(short(e.at), e.kind, e.actor, _details(e.data)) for e in detail.history])


def _details(data: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in data.items())
