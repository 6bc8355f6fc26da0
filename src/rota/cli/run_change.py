"""`rota run cancel|retry`."""

from __future__ import annotations

import click

from rota.cli.arguments import RUN_ID
from rota.cli.format import count, whose
from rota.cli.lazy import Command
from rota.cli.output import as_json, say, say_json
from rota.cli.session import Session, ask
from rota.control import Cancellation
from rota.control.shapes.runs import cancelled_shape, run_shape
from rota.model.job import JobName
from rota.model.run import Run


@click.command(cls=Command)
@click.argument("run_ids", metavar="ID...", type=RUN_ID, nargs=-1, required=True)
@click.pass_context
def cancel(ctx: click.Context, run_ids: tuple[int, ...]) -> None:
    """Stop runs: what has not started is cancelled at once, what runs is asked to stop, and killed if it does not."""
    wanted = list(dict.fromkeys(run_ids))

    async def work(session: Session) -> tuple[Cancellation, dict[int, JobName]]:
        done = await session.control.runs.cancel(wanted)
        return done, await session.control.runs.names(done.runs)

    cancelled, names = ask(ctx, work)
    if as_json(ctx):
        say_json(cancelled_shape(cancelled, names))
        return
    for run in cancelled.runs:
        say(f"run {run.id} ({whose(run, names.get(run.job_id))}) is {_standing(run)}")
    say(f"{count(cancelled.done.ended, 'item')} cancelled, {cancelled.done.asked} asked to stop")


def _standing(run: Run) -> str:
    return f"{run.state}, and asked to stop" if run.state.live and run.cancel_at is not None else str(run.state)


@click.command(cls=Command)
@click.argument("run_id", metavar="ID", type=RUN_ID)
@click.option("--same-version", is_flag=True, help="Run the version of the job that ran then, not the newest.")
@click.pass_context
def retry(ctx: click.Context, run_id: int, same_version: bool) -> None:
    """Run an ended run again, with its parameters and its slot, under the overlap policy of its job."""

    async def work(session: Session) -> tuple[Run, dict[int, JobName]]:
        run = await session.control.runs.retry(run_id, same_version=same_version)
        return run, await session.control.runs.names([run])

    run, names = ask(ctx, work)
    if as_json(ctx):
        say_json(run_shape(run, names[run.job_id]))
    else:
        why = f": {run.reason}" if run.reason else ""
        say(f"run {run.id} of {names[run.job_id]} (version {run.version}) is {run.state}{why}; it repeats run {run_id}")
