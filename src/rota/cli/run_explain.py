"""`rota run explain`: why a run waits, or has failed."""

from __future__ import annotations

import click

from rota.cli.arguments import RUN_ID
from rota.cli.format import count, number
from rota.cli.lazy import Command
from rota.cli.output import as_json, coloured, facts, say, say_json, table
from rota.cli.session import ask
from rota.control import Explained, Reason
from rota.control.shapes.runs import explained_shape

SHOWN_MAX = 20


@click.command(cls=Command)
@click.argument("run_id", metavar="ID", type=RUN_ID)
@click.pass_context
def explain(ctx: click.Context, run_id: int) -> None:
    """Say, for every item of a run that has not ended, what it waits for or where it runs.

    Of a run that has failed: why."""
    told = ask(ctx, lambda session: session.control.runs.explain(run_id))
    if as_json(ctx):
        say_json(explained_shape(told))
        return
    facts([("run", str(run_id)), ("state", coloured(told.run.state))])
    say()
    _show(told)


def _show(told: Explained) -> None:
    if not told.reasons:
        say("none of its items is live; the run ends in a moment")
        return
    for it in told.reasons:
        if it.item_id is None:
            say(it.text)
    items = [it for it in told.reasons if it.item_id is not None]
    if not items:
        return
    numbered = any(number(it) for it in items)
    heads = ["ITEM", "NUMBER" if numbered else "TASK", "WHY"]
    table(heads, [_row(it, numbered=numbered) for it in items[:SHOWN_MAX]])
    if len(items) > SHOWN_MAX:
        say(f"… {count(len(items) - SHOWN_MAX, 'more item')}; --json shows all")


def _row(it: Reason, *, numbered: bool) -> tuple[str, ...]:
    place = f"{it.task}[{it.index}]" if it.index else it.task
    return str(it.item_id), (number(it) or "-") if numbered else place, it.text
