"""`rota job apply`: definitions of files and folders go into the store, all of them or none."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import click

from rota.cli.lazy import Command
from rota.cli.output import as_json, coloured, say_json, table
from rota.cli.progress import patiently
from rota.cli.session import Session, ask
from rota.errors import InvalidInput

if TYPE_CHECKING:
    from rota.control import Action


@click.command(cls=Command)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Show the plan only.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_context
def apply(ctx: click.Context, paths: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Show what changes, then store the definitions of PATH... in one transaction.

    If anything is wrong with any of them, every problem is told and nothing is stored.
    """

    async def work(session: Session) -> tuple[list[Action], bool]:
        loaded = await patiently(session.clock, "loading definitions", session.control.load(paths))
        if loaded.problems:
            raise InvalidInput(loaded.problems)
        plan = await session.control.plan(loaded.definitions)
        if not as_json(ctx):
            _show(plan)
        if dry_run or all(it.action == "nothing" for it in plan):
            return plan, False
        _confirm(plan, yes=yes or as_json(ctx))
        return await patiently(session.clock, "storing jobs", session.control.apply(loaded.definitions)), True

    plan, applied = ask(ctx, work)
    if as_json(ctx):
        say_json({"applied": applied, "dry_run": dry_run, "actions": [_shape(it) for it in plan]})
    else:
        print(_summary(plan, applied=applied, dry_run=dry_run))


def _confirm(plan: list[Action], *, yes: bool) -> None:
    if not yes and sys.stdin.isatty() and sys.stdout.isatty():
        doing = sum(it.action != "nothing" for it in plan)
        click.confirm(f"Apply {doing} of {len(plan)}?", abort=True)


def _show(plan: list[Action]) -> None:
    if plan:
        table(["ACTION", "JOB", "FIELDS"], [(coloured(it.action), str(it.name), ", ".join(it.fields)) for it in plan])
    for it in plan:
        if it.never_due:
            print(f"warning: {it.name} will never be due: all its instants have passed", file=sys.stderr)


def _summary(plan: list[Action], *, applied: bool, dry_run: bool) -> str:
    count = Counter(it.action for it in plan)
    if not plan:
        return "there are no definitions here"
    if not applied and not dry_run:
        return f"nothing to do: {count['nothing']} unchanged"
    words = ("to create", "to change") if dry_run else ("created", "changed")
    return f"{count['create']} {words[0]}, {count['change']} {words[1]}, {count['nothing']} unchanged"


def _shape(it: Action) -> dict[str, object]:
    return {"job": str(it.name), "action": it.action, "fields": list(it.fields), "never_due": it.never_due}
