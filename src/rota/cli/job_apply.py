"""`rota job apply`: definitions of files and folders go into the store, all of them or none."""

from __future__ import annotations

import sys
from collections import Counter

import click

from rota.cli.lazy import Command
from rota.cli.output import as_json, coloured, confirm, patiently, said, say, table
from rota.cli.session import Session, ask
from rota.control.jobs import Action, applied_shape, sources_of
from rota.errors import InvalidInput, Problem

DOING = ("create", "change", "adopt", "delete")
DONE = {"create": "created", "change": "changed", "adopt": "adopted", "delete": "deleted"}


@click.command(cls=Command)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Show the plan only.")
@click.option("--prune", is_flag=True, help="Delete jobs that came from PATH... and are no longer defined there.")
@click.option("--repository", metavar="NAME", help="The repository that these files are of.")
@click.option("--take-over", is_flag=True, help="Take over jobs that another file or app defines.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_context
def apply(
    ctx: click.Context,
    paths: tuple[str, ...],
    dry_run: bool,
    prune: bool,
    repository: str | None,
    take_over: bool,
    yes: bool,
) -> None:
    """Show what changes, then store the definitions of PATH... in one transaction; --prune deletes in another.

    If anything is wrong with any of them, every problem is told and nothing is stored. A job remembers where it is
    defined (the path and its repository, or the name of its app), and has one such source: one that another file or app
    defines is refused. Files of the same path in two folders are told apart by their repository, which --prune
    therefore needs: --repository, or definitions.repository in rota.toml.
    """

    async def work(session: Session) -> tuple[list[Action], bool]:
        control, repository_name = session.control, session.config.definitions.repository
        loaded = await patiently(session.clock, "loading definitions", control.jobs.load(paths, repository_name))
        if loaded.problems:
            raise InvalidInput(loaded.problems)
        sources = sources_of(loaded, take_over=take_over, by_hand=True)
        plan = await control.jobs.plan(loaded.definitions, sources)
        _refuse(plan)
        orphans = await control.jobs.orphans(loaded.definitions, sources, repository_name) if prune else []
        if not as_json(ctx):
            _show([*plan, *orphans])
        doing = sum(it.action != "nothing" for it in [*plan, *orphans])
        if dry_run or not doing:
            return [*plan, *orphans], False
        confirm(ctx, f"Apply {doing} of {len(plan) + len(orphans)}?", yes=yes)
        done = await patiently(session.clock, "storing jobs", control.jobs.apply(loaded.definitions, sources))
        await control.jobs.prune(orphans)
        return [*done, *orphans], True

    plan, applied = ask(ctx, work, flags={"definitions.repository": repository})
    how = {"applied": applied, "dry_run": dry_run}
    said(ctx, applied_shape(plan, **how), _summary(plan, **how))


def _refuse(plan: list[Action]) -> None:
    advice = "remove it from one of them, or take it over: rota job apply --take-over"
    problems = [Problem(str(it.name), f"{it.reason}; {advice}") for it in plan if it.action == "refuse"]
    if problems:
        raise InvalidInput(problems)


def _show(plan: list[Action]) -> None:
    rows = [
        (coloured(it.action), str(it.name), ", ".join(it.fields) or it.reason) for it in plan if it.action != "nothing"
    ]
    if rows:
        table(["ACTION", "JOB", "DETAILS"], rows)
    for it in plan:
        if it.never_due:
            say(f"warning: {it.name} will never be due: all its instants have passed", file=sys.stderr)


def _summary(plan: list[Action], *, applied: bool, dry_run: bool) -> str:
    count = Counter(it.action for it in plan)
    if not plan:
        return "there are no definitions here"
    if not applied and not dry_run:
        return f"nothing to do: {count['nothing']} unchanged"
    always = ("create", "change")
    told = [action for action in DOING if action in always or count[action]]
    words = [f"{count[action]} {f'to {action}' if dry_run else DONE[action]}" for action in told]
    return ", ".join([*words, f"{count['nothing']} unchanged"])
