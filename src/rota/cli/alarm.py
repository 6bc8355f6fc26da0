"""`rota alarm`: who is told of what, by mail, webhook or command."""

from __future__ import annotations

import shlex
from typing import Any

import click

from rota.cli.arguments import LIMIT
from rota.cli.format import channel_words, count, cut
from rota.cli.lazy import Group, Seconds
from rota.cli.output import listed, said
from rota.cli.session import Session, ask
from rota.control.alarms import RuleState, alarm_shape, rule_shape
from rota.control.values import short
from rota.errors import InvalidInput
from rota.model.alarm import LATE_S, MERGE_S, AlarmRule, ChannelKind, Delivery


@click.group(cls=Group)
def alarm() -> None:
    """Set, list, remove who is told of what; test a channel; see what was told."""


@alarm.command(name="set")
@click.option(
    "--scope",
    default="cluster",
    show_default=True,
    metavar="SCOPE",
    help="cluster, tenant/T, project/T/P or job/T/P/J.",
)
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="What to tell of; may be repeated. [default: all]")
@click.option("--mail", metavar="ADDRESS", help="Tell by mail.")
@click.option("--webhook", metavar="URL", help="Tell by a signed POST.")
@click.option("--command", metavar="ARGV", help="Tell a program; quoted as for a shell, but no shell runs it.")
@click.option("--job", metavar="NAME", help="Start a run of a job, with the message as its parameter `alarm`.")
@click.option("--name", metavar="NAME", help="The rule's name. [default: from scope and channel]")
@click.option(
    "--merge-s",
    type=Seconds(),
    default=MERGE_S,
    show_default=True,
    help="Alarms of one kind within that are one message.",
)
@click.option(
    "--late-s", type=Seconds(), default=LATE_S, show_default=True, help="late_start: so long after start_within_s."
)
@click.option("--secret", metavar="TEXT", help="What a webhook is signed with. [default: made and shown]")
@click.pass_context
def set_(ctx: click.Context, /, **given: Any) -> None:
    """Make a rule, or change it. It is told of what happens from now on, in its scope and all that lies in it."""
    ways = {str(kind): given.pop(kind) for kind in ChannelKind}
    named = {way: to for way, to in ways.items() if to is not None}
    if len(named) != 1:
        raise click.UsageError("say whom to tell: one of --mail, --webhook, --command, --job", ctx)
    ((way, to),) = named.items()
    to = _argv(to) if way == ChannelKind.COMMAND else to
    rule = ask(ctx, lambda session: session.control.alarms.set(way, to, **given))
    shown = rule_shape(RuleState(rule)) | ({"secret": rule.channel.secret} if rule.channel.secret else {})
    signed = f"\nit is signed with the secret {rule.channel.secret}" if rule.channel.secret else ""
    said(ctx, shown, f"rule {rule.name}: {_kinds(rule)} in {rule.scope} to {channel_words(rule.channel)}{signed}")


@alarm.command(name="list")
@click.pass_context
def list_(ctx: click.Context) -> None:
    """List the rules, and whether they reach whom they should."""
    found = ask(ctx, lambda session: session.control.alarms.states())
    heads = ["RULE", "SCOPE", "KINDS", "TO", "MERGE", "WAITING", "LAST"]
    empty = "nobody is told of anything; begin with: rota alarm set --mail you@example.com"
    listed(ctx, [rule_shape(it) for it in found], heads, map(_row, found), empty)


@alarm.command()
@click.argument("name", metavar="RULE")
@click.pass_context
def remove(ctx: click.Context, name: str) -> None:
    """Forget a rule, and what is on its way by it."""
    ask(ctx, lambda session: session.control.alarms.remove(name))
    said(ctx, {"name": name, "removed": True}, f"rule {name} is removed")


@alarm.command()
@click.argument("name", metavar="RULE")
@click.pass_context
def test(ctx: click.Context, name: str) -> None:
    """Send a test through the channel of a rule, from this host, and say what came back."""

    async def work(session: Session) -> str:
        from rota.wiring import courier

        return await session.control.alarms.test(name, courier(session.config, session.clock, session.control))

    answer = ask(ctx, work)
    said(ctx, {"name": name, "answer": answer}, f"sent; the answer: {answer}")


@alarm.command()
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="How many.")
@click.pass_context
def history(ctx: click.Context, limit: int) -> None:
    """List the newest alarms, and who was told of them."""
    alarms, told = ask(ctx, lambda session: session.control.alarms.told(limit=limit))
    shapes = [alarm_shape(it, told.get(it.id, [])) for it in alarms]
    rows = [(short(it.at), str(it.kind), it.text or "-", _told(told.get(it.id, []))) for it in alarms]
    listed(ctx, shapes, ["AT", "KIND", "WHAT", "TOLD"], rows, "no alarms")


def _argv(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidInput.of("--command", f"cannot be split into arguments: {error}") from None


def _kinds(rule: AlarmRule) -> str:
    return ", ".join(rule.kinds) or "all"


def _row(it: RuleState) -> tuple[str, ...]:
    rule, last = it.rule, it.last
    said_last = "-" if last is None else f"{'arrived' if last.arrived else 'failed'}: {cut(last.answer, 60)}"
    whole = rule.name, rule.scope, _kinds(rule), channel_words(rule.channel)
    return *whole, f"{rule.merge_s:g} s", str(it.pending), said_last


def _told(told: list[Delivery]) -> str:
    arrived = sum(it.arrived for it in told)
    waiting = sum(it.ended_at is None for it in told)
    parts = [count(arrived, "rule")] if arrived else []
    parts += [f"{waiting} waiting"] if waiting else []
    lost = len(told) - arrived - waiting
    return ", ".join([*parts, *([f"{lost} given up"] if lost else [])]) or "-"
