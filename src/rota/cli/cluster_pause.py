"""`rota cluster pause|resume`: fire nothing, of all or of a tenant or project, until told otherwise."""

from __future__ import annotations

import click

from rota.cli.lazy import Command
from rota.cli.output import said
from rota.cli.session import Session, ask
from rota.control.shapes.cluster import paused_shape
from rota.errors import InvalidInput
from rota.model.cluster import Hold

_TENANT = click.option("--tenant", metavar="TENANT", help="Only this tenant. [default: everything]")
_PROJECT = click.option("--project", metavar="TENANT/PROJECT", help="Only this project of a tenant.")


@click.command(cls=Command)
@_TENANT
@_PROJECT
@click.pass_context
def pause(ctx: click.Context, tenant: str | None, project: str | None) -> None:
    """Let nothing fire until resumed. It lasts, over restarts too. What was fired goes on, and jobs can be triggered by
    hand; slots that fall into the pause follow the misfire policy of their job afterwards."""
    scope = _scope(tenant, project)
    held = ask(ctx, lambda session: session.control.holds.hold(*scope))
    said(ctx, paused_shape(*scope, held), f"{_name(scope)} is paused")


@click.command(cls=Command)
@_TENANT
@_PROJECT
@click.pass_context
def resume(ctx: click.Context, tenant: str | None, project: str | None) -> None:
    """Let what was paused fire again. Name the same scope: others stay paused."""
    scope = _scope(tenant, project)

    async def work(session: Session) -> tuple[bool, tuple[Hold, ...]]:
        return await session.control.holds.unhold(*scope), await session.control.holds.all()

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
