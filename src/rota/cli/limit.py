"""`rota limit`: how much may execute at a time in the whole cluster, and of what names a resource."""

from __future__ import annotations

from typing import Any

import click

from rota.cli.arguments import CAP_OPTION, RATE_OPTION
from rota.cli.format import limit_words, rate_words
from rota.cli.lazy import Group
from rota.cli.output import as_json, said, say_json, table
from rota.cli.session import ask
from rota.control import KEEP
from rota.control.shapes.limits import limit_shape
from rota.model.work import CAPACITY, GLOBAL


@click.group(cls=Group)
def limit() -> None:
    """Set, list, remove the global limit and those of resources. Quotas: see rota tenant."""


@limit.command(name="set")
@click.argument("name", metavar="global|resource:NAME")
@CAP_OPTION
@RATE_OPTION
@click.pass_context
def set_(ctx: click.Context, name: str, cap: Any, rate: Any) -> None:
    """Set a limit. What is not said stays as it is. A cap below what runs stops new starts only."""
    if cap is KEEP and rate is KEEP:
        raise click.UsageError("say what to set: --cap or --rate", ctx)

    made = ask(ctx, lambda session: session.control.set_limit(name, cap=cap, rate=rate))
    said(ctx, limit_shape(made), f"{made.name}: {limit_words(made)}")


@limit.command(name="list")
@click.pass_context
def list_(ctx: click.Context) -> None:
    """List the global limit and those of resources."""
    found = ask(ctx, lambda session: session.control.limits())
    if as_json(ctx):
        say_json([limit_shape(it) for it in found])
        return
    rows = [
        (it.name, "none" if it.cap is None else str(it.cap), rate_words(it.rate) if it.rate else "-") for it in found
    ]
    table(["LIMIT", "CAP", "RATE"], rows)


@limit.command()
@click.argument("name", metavar="global|resource:NAME")
@click.pass_context
def remove(ctx: click.Context, name: str) -> None:
    """Forget a limit. The global one goes back to 100."""
    ask(ctx, lambda session: session.control.remove_limit(name))
    what = f"{name} is removed" if name != GLOBAL else f"global is back to its default, at most {CAPACITY} at a time"
    said(ctx, {"name": name, "removed": True}, what)
