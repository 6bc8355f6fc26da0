"""`rota run explain`: why a run waits."""

from __future__ import annotations

import click

from rota.cli.given import RUN_ID
from rota.cli.lazy import Command
from rota.cli.output import as_json, coloured, facts, say_json, table
from rota.cli.session import Session, ask
from rota.cli.shapes import Shape
from rota.cli.words import count, iso
from rota.control import Explained, Reason

SHOWN_MAX = 20


@click.command(cls=Command)
@click.argument("run_id", metavar="ID", type=RUN_ID)
@click.pass_context
def explain(ctx: click.Context, run_id: int) -> None:
    """Say, for every item of a run that has not ended, what it waits for or where it runs."""

    async def work(session: Session) -> Explained:
        return await session.control.explain(run_id)

    told = ask(ctx, work)
    if as_json(ctx):
        say_json({"run": run_id, "state": str(told.run.state), "reasons": [_shape(it) for it in told.reasons]})
        return
    facts([("run", str(run_id)), ("state", coloured(told.run.state))])
    print()
    _show(told)


def _show(told: Explained) -> None:
    if not told.reasons:
        print("none of its items is live; the run ends in a moment")
        return
    if told.reasons[0].item_id is None:
        print(told.reasons[0].text)
        return
    numbered = any(it.number for it in told.reasons)
    heads = ["ITEM", "NUMBER" if numbered else "TASK", "WHY"]
    table(heads, [_row(it, numbered=numbered) for it in told.reasons[:SHOWN_MAX]])
    if len(told.reasons) > SHOWN_MAX:
        print(f"… {count(len(told.reasons) - SHOWN_MAX, 'more item')}; --json shows all")


def _row(it: Reason, *, numbered: bool) -> tuple[str, ...]:
    place = f"{it.task}[{it.index}]" if it.index else it.task
    return str(it.item_id), (it.number or "-") if numbered else place, it.text


def _shape(it: Reason) -> Shape:
    return {
        "item_id": it.item_id,
        "task": it.task or None,
        "index": it.index if it.item_id is not None else None,
        "number": it.number,
        "why": str(it.why),
        "text": it.text,
        "until_at": iso(it.until_at),
    }
