"""`rota cluster pause|resume|rebalance`: fire nothing for a while; share the jobs out evenly."""

from __future__ import annotations

import click

from rota.cli.format import count
from rota.cli.lazy import Command, Seconds
from rota.cli.output import as_json, said, say, say_json, table
from rota.cli.progress import Progress
from rota.cli.session import COORDINATOR_OPTION, Session, ask
from rota.control import ClusterFacts, Rebalance
from rota.control.shapes.cluster import paused_shape, rebalanced_shape
from rota.errors import InvalidInput
from rota.model.cluster import Hold

_TENANT = click.option("--tenant", metavar="TENANT", help="Only this tenant. [default: everything]")
_PROJECT = click.option("--project", metavar="TENANT/PROJECT", help="Only this project of a tenant.")
WAIT_S = 60.0

Rebalanced = tuple[ClusterFacts, Rebalance, int]


@click.command(cls=Command)
@_TENANT
@_PROJECT
@click.pass_context
def pause(ctx: click.Context, tenant: str | None, project: str | None) -> None:
    """Let nothing fire until resumed. It lasts, over restarts too. What was fired goes on, and jobs can be triggered by
    hand; slots that fall into the pause follow the misfire policy of their job afterwards."""
    scope = _scope(tenant, project)
    held = ask(ctx, lambda session: session.control.hold(*scope))
    said(ctx, paused_shape(*scope, held), f"{_name(scope)} is paused")


@click.command(cls=Command)
@_TENANT
@_PROJECT
@click.pass_context
def resume(ctx: click.Context, tenant: str | None, project: str | None) -> None:
    """Let what was paused fire again. Name the same scope: others stay paused."""
    scope = _scope(tenant, project)

    async def work(session: Session) -> tuple[bool, tuple[Hold, ...]]:
        return await session.control.unhold(*scope), await session.control.holds()

    was, held = ask(ctx, work)
    still = f"; still paused: {', '.join(map(str, held))}" if held else ""
    text = f"{_name(scope)} is resumed{still}" if was else f"{_name(scope)} was not paused{still}"
    said(ctx, {**paused_shape(*scope, held), "was_paused": was}, text)


def _scope(tenant: str | None, project: str | None) -> tuple[str, str]:
    """A tenant and a project, each perhaps empty."""
    if project is None:
        return tenant or "", ""
    owner, slash, name = project.partition("/")
    if not (slash and owner and name) or "/" in name:
        raise InvalidInput.of("--project", f"must be TENANT/PROJECT, not {project!r:.60}")
    if tenant is not None and tenant != owner:
        raise InvalidInput.of("--project", f"is of tenant {owner}, not of {tenant!r:.60}; leave --tenant out")
    return owner, name


def _name(scope: tuple[str, str]) -> str:
    return str(Hold(tenant=scope[0], project=scope[1]))


@click.command(cls=Command)
@click.option("--dry-run", is_flag=True, help="Only show what would move.")
@click.option("--no-wait", is_flag=True, help="Do not wait until the jobs have arrived.")
@click.option("--within", metavar="S", type=Seconds(), default=WAIT_S, show_default=True, help="Wait at most so long.")
@COORDINATOR_OPTION
@click.pass_context
def rebalance(ctx: click.Context, dry_run: bool, no_wait: bool, within: float) -> None:
    """Share the jobs out evenly, by weight. Each goes to a named receiver, for whom it is kept; none moves twice."""

    async def work(session: Session) -> Rebalanced:
        seen, plan = await session.control.rebalance(dry_run=dry_run)
        if dry_run or no_wait or not plan.shifts:
            return seen, plan, 0
        total = len(plan.shifts)
        with Progress(session.clock, "moving jobs", total=total) as bar:
            there = await session.control.arrived(
                plan.shifts, lambda done: bar.say(f"{done} of {total} have arrived", done), within
            )
        return seen, plan, there

    seen, plan, there = ask(ctx, work, coordinated=True)
    if as_json(ctx):
        say_json(rebalanced_shape(seen, plan, there, dry_run=dry_run))
        return
    heads = ["SCHEDULER", "HELD BEFORE", "HELD AFTER (X)", "LIMIT (N)", "ALARM (M)"]
    table(heads, [tuple(map(str, row)) for row in _rows(seen, plan)])
    say(_summary(plan, there, dry_run=dry_run, waited=not no_wait))


def _rows(seen: ClusterFacts, plan: Rebalance) -> list[tuple[str, int, int, int, int | str]]:
    return [
        (
            it.name,
            plan.before[it.name],
            plan.after[it.name],
            seen.limits[it.name],
            "-" if it.alarm is None else it.alarm,
        )
        for it in seen.active
    ]


def _summary(plan: Rebalance, there: int, *, dry_run: bool, waited: bool) -> str:
    total = len(plan.shifts)
    if not total:
        return "everybody has its share; nothing to move"
    if dry_run:
        return f"{count(total, 'job')} would move"
    if not waited:
        return f"{count(total, 'job')} told to move"
    return f"{count(total, 'job')} moved" if there == total else f"{there} of {total} jobs have arrived so far"
