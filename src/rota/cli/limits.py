"""`rota limit` and `rota tenant`: how much may execute at a time in the whole cluster, of what names a resource, and
for whom."""

from __future__ import annotations

from typing import Any

import click

from rota.cli.arguments import CAP_OPTION, RATE_OPTION, WEIGHT
from rota.cli.format import count, limit_words, rate_words
from rota.cli.lazy import Group
from rota.cli.output import listed, said
from rota.cli.session import ask
from rota.control.limits import KEEP, QuotaState, limit_shape, quota_shape, removed_shape
from rota.errors import InvalidInput
from rota.model.work import CAPACITY, GLOBAL


@click.group(cls=Group)
def limit() -> None:
    """Set, list, remove the global limit and those of resources. Quotas: see rota tenant."""


@limit.command(name="set")
@click.argument("name", metavar="global|resource:NAME")
@CAP_OPTION
@RATE_OPTION
@click.pass_context
def set_limit(ctx: click.Context, name: str, cap: Any, rate: Any) -> None:
    """Set a limit. What is not said stays as it is. A cap below what runs stops new starts only."""
    if cap is KEEP and rate is KEEP:
        raise click.UsageError("say what to set: --cap or --rate", ctx)
    made = ask(ctx, lambda session: session.control.limits.set(name, cap=cap, rate=rate))
    said(ctx, limit_shape(made), f"{made.name}: {limit_words(made)}")


@limit.command(name="list")
@click.pass_context
def list_limits(ctx: click.Context) -> None:
    """List the global limit and those of resources."""
    found = ask(ctx, lambda session: session.control.limits.all())
    rows = [
        (it.name, "none" if it.cap is None else str(it.cap), rate_words(it.rate) if it.rate else "-") for it in found
    ]
    listed(ctx, [limit_shape(it) for it in found], ["LIMIT", "CAP", "RATE"], rows)


@limit.command(name="remove")
@click.argument("name", metavar="global|resource:NAME")
@click.pass_context
def remove_limit(ctx: click.Context, name: str) -> None:
    """Forget a limit. The global one goes back to 100."""
    ask(ctx, lambda session: session.control.limits.remove(name))
    what = f"{name} is removed" if name != GLOBAL else f"global is back to its default, at most {CAPACITY} at a time"
    said(ctx, {"name": name, "removed": True}, what)


@click.group(cls=Group)
def tenant() -> None:
    """Set, list, remove tenants and their quotas."""


@tenant.command(name="set")
@click.argument("name", metavar="NAME")
@click.option("--quota", metavar="QUOTA", default="default", show_default=True, help="Which of its quotas.")
@CAP_OPTION
@click.option("--weight", type=WEIGHT, metavar="W", help="Its share where others are due at the same instant.")
@RATE_OPTION
@click.pass_context
def set_tenant(ctx: click.Context, name: str, quota: str, cap: Any, weight: int | None, rate: Any) -> None:
    """Make a tenant, or change a quota of it. What is not said stays as it is; a new quota has no cap."""
    given = {"cap": cap, "weight": KEEP if weight is None else weight, "rate": rate}
    limit = ask(ctx, lambda session: session.control.limits.set_quota(name, quota, **given))
    text = f"quota {quota} of tenant {name}: {limit_words(limit)}, weight {limit.weight}"
    said(ctx, {"tenant": name, "quota": quota, **limit_shape(limit)}, text)


@tenant.command(name="list")
@click.pass_context
def list_tenants(ctx: click.Context) -> None:
    """List the quotas of all tenants. Each with what is ready and what runs of it."""
    found = ask(ctx, lambda session: session.control.limits.quotas())
    heads = ["TENANT", "QUOTA", "CAP", "WEIGHT", "RATE", "READY", "RUNNING"]
    empty = "no tenants; make one with: rota tenant set NAME --cap N"
    listed(ctx, [quota_shape(it) for it in found], heads, map(_row, found), empty)


def _row(it: QuotaState) -> tuple[str, ...]:
    limit = it.limit
    cap = "not set" if limit is None else "none" if limit.cap is None else str(limit.cap)
    weight = "-" if limit is None else str(limit.weight)
    rate = "-" if limit is None or limit.rate is None else rate_words(limit.rate)
    return it.tenant, it.quota, cap, weight, rate, str(it.ready), str(it.running)


@tenant.command(name="remove")
@click.argument("name", metavar="NAME")
@click.option("--quota", metavar="QUOTA", help="Only this quota of it.")
@click.option("--cancel", is_flag=True, help="Cancel its unfinished runs first.")
@click.pass_context
def remove_tenant(ctx: click.Context, name: str, quota: str | None, cancel: bool) -> None:
    """Forget a tenant and its quotas. Refused while it has unfinished items, unless they shall be cancelled; one quota
    also while a job names it."""
    if quota is not None:
        _remove_quota(ctx, name, quota, cancel=cancel)
        return
    done = ask(ctx, lambda session: session.control.limits.remove_tenant(name, cancel=cancel))
    text = f"tenant {name} is removed, with {count(len(done.quotas), 'quota')}"
    if done.ended or done.asked:
        text += f"; {count(done.ended, 'item')} cancelled, {done.asked} asked to stop"
    said(ctx, removed_shape(name, done), text)


def _remove_quota(ctx: click.Context, name: str, quota: str, *, cancel: bool) -> None:
    if cancel:
        raise InvalidInput.of("--cancel", "cancels the runs of a whole tenant; leave out --quota")
    ask(ctx, lambda session: session.control.limits.remove_quota(name, quota))
    said(ctx, {"tenant": name, "quotas": [quota]}, f"quota {quota} of tenant {name} is removed")
