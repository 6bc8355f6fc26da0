"""`rota cluster`: show the schedulers, pause and resume, rebalance, look for what is wrong, write it all down."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rota.cli.faults import OK, UNHEALTHY
from rota.cli.format import count
from rota.cli.lazy import Command, Seconds
from rota.cli.output import Progress, answer, as_json, coloured, facts, patiently, said, say, say_json, table
from rota.cli.session import COORDINATOR_OPTION, Session, ask, settings
from rota.control import ClusterFacts, Finding, Rebalance, Severity
from rota.control.cluster import FIRST, cluster_shape, examined_shape, paused_shape, rebalanced_shape
from rota.control.values import short
from rota.errors import InvalidInput
from rota.model.cluster import Drain, Hold, Peer, Placement
from rota.model.job import JobName

if TYPE_CHECKING:
    from rich.text import Text

WAIT_S = 60.0

_TENANT = click.option("--tenant", metavar="TENANT", help="Only this tenant. [default: everything]")
_PROJECT = click.option("--project", metavar="TENANT/PROJECT", help="Only this project of a tenant.")

Rebalanced = tuple[ClusterFacts, Rebalance, int]
Examined = tuple[tuple[Finding, ...], tuple[str, ...]]


@click.command(cls=Command)
@COORDINATOR_OPTION
@click.pass_context
def show(ctx: click.Context) -> None:
    """Show the schedulers: jobs held (X), limit (N), alarm threshold (M), faults to survive (n), and the whole: jobs
    (K), spare, margin, jobs without an owner, hand-overs on their way, drained nodes, what is paused."""

    async def work(session: Session) -> tuple[ClusterFacts, dict[int, JobName]]:
        seen = await session.control.cluster.facts()
        return seen, await session.control.cluster.job_names([*seen.unowned[:FIRST], *list(seen.going)[:FIRST]])

    seen, names = ask(ctx, work, coordinated=True)
    answer(ctx, cluster_shape(seen, names), _show, seen, names)


def _show(seen: ClusterFacts, names: Mapping[int, JobName]) -> None:
    facts(_whole(seen, names))
    if not seen.peers:
        say("\nno scheduler takes part; start one with: rota node start (with placement none, a node is not seen here)")
        return
    say()
    table(_heads(seen), [_row(seen, peer) for peer in seen.peers])


def _whole(seen: ClusterFacts, names: Mapping[int, JobName]) -> list[tuple[str, str | Text]]:
    claims, owners = seen.placement is Placement.CLAIM, seen.placement in (Placement.CLAIM, Placement.SCOPE)
    drained = f", {len(seen.peers) - len(seen.active)} drained" if len(seen.peers) > len(seen.active) else ""
    lines: list[tuple[str, str | Text | None]] = [
        ("placement", str(seen.placement or "-")),
        ("schedulers", f"{len(seen.active)}{drained}"),
        ("jobs", str(len(seen.jobs))),
        ("capacity", _capacity(seen) if claims and seen.peers else None),
        ("leader", seen.leader or "none" if seen.placement is Placement.SCOPE else None),
        ("epoch", str(seen.plan.epoch) if seen.plan is not None else None),
        ("fires now", seen.leader or "nobody" if seen.placement is Placement.BEAT else None),
        ("unowned", _named(seen.unowned, names) if owners else None),
        ("on the way", ", ".join(f"{names.get(it, it)} to {to.to}" for it, to in list(seen.going.items())[:FIRST])),
        ("unreachable", "; ".join(f"{', '.join(it.unreachable)} for {it.name}" for it in seen.peers if it.unreachable)),
        ("drained", "; ".join(_drain(it) for it in seen.drains)),
        ("paused", "; ".join(f"{it}, since {short(it.held_at)} by {it.actor}" for it in seen.holds)),
    ]
    return [(name, value) for name, value in lines if value]


def _capacity(seen: ClusterFacts) -> str:
    if seen.margin < 0:
        return f"{-seen.spare} jobs too many for all schedulers together"
    return f"spare {seen.spare}; {count(seen.margin, 'more scheduler')} may die"


def _named(job_ids: tuple[int, ...], names: Mapping[int, JobName]) -> str:
    if not job_ids:
        return "none"
    more = ", …" if len(job_ids) > FIRST else ""
    return f"{len(job_ids)}: {', '.join(str(names.get(it, it)) for it in job_ids[:FIRST])}{more}"


def _drain(it: Drain) -> str:
    words = [", ".join(it.roles)]
    if it.keep is not None:
        words.append(f"down to {count(it.keep, 'job')}")
    if it.deadline_at is not None:
        words.append(f"until {short(it.deadline_at)}")
    return f"{it.name} ({', '.join(words)})"


def _heads(seen: ClusterFacts) -> list[str]:
    more = {
        Placement.CLAIM: ["HELD (X)", "LIMIT (N)", "ALARM (M)", "FAULTS (n)"],
        Placement.SCOPE: ["HELD (X)", "EPOCH", "RANGE"],
    }
    own = more.get(seen.placement, []) if seen.placement else []
    return ["SCHEDULER", "STATE", *own, "WEIGHT", "BUSY", "ADDRESS"]


def _row(seen: ClusterFacts, peer: Peer) -> tuple[str | Text, ...]:
    held, limit = str(seen.held[peer.name]), seen.limits.get(peer.name)
    more: dict[Placement, tuple[str, ...]] = {
        Placement.CLAIM: (held, _or_dash(limit), _or_dash(peer.alarm), str(peer.faults)),
        Placement.SCOPE: (held, str(peer.epoch), peer.range or "-"),
    }
    own = more.get(seen.placement, ()) if seen.placement else ()
    whole = f"{peer.weight:g}", f"{peer.busy:.1f} %", peer.address or "-"
    return peer.name, coloured(seen.state_of(peer)), *own, *whole


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


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


@click.command(cls=Command)
@click.option("--dry-run", is_flag=True, help="Only show what would move.")
@click.option("--no-wait", is_flag=True, help="Do not wait until the jobs have arrived.")
@click.option("--within", metavar="S", type=Seconds(), default=WAIT_S, show_default=True, help="Wait at most so long.")
@COORDINATOR_OPTION
@click.pass_context
def rebalance(ctx: click.Context, dry_run: bool, no_wait: bool, within: float) -> None:
    """Share the jobs out evenly, by weight. Each goes to a named receiver, for whom it is kept; none moves twice."""

    async def work(session: Session) -> Rebalanced:
        seen, plan = await session.control.cluster.rebalance(dry_run=dry_run)
        if dry_run or no_wait or not plan.shifts:
            return seen, plan, 0
        total = len(plan.shifts)
        with Progress(session.clock, "moving jobs", total=total) as bar:
            there = await session.control.cluster.arrived(
                plan.shifts, lambda done: bar.say(f"{done} of {total} have arrived", done), within
            )
        return seen, plan, there

    seen, plan, there = ask(ctx, work, coordinated=True)
    shape = rebalanced_shape(seen, plan, there, dry_run=dry_run)
    heads = ["SCHEDULER", "HELD BEFORE", "HELD AFTER (X)", "LIMIT (N)", "ALARM (M)"]
    answer(ctx, shape, table, heads, [[*map(_or_dash, it.values())] for it in shape["schedulers"]])
    if not as_json(ctx):
        say(_summary(plan, there, dry_run=dry_run, waited=not no_wait))


def _summary(plan: Rebalance, there: int, *, dry_run: bool, waited: bool) -> str:
    total = len(plan.shifts)
    if not total:
        return "everybody has its share; nothing to move"
    if dry_run:
        return f"{count(total, 'job')} would move"
    if not waited:
        return f"{count(total, 'job')} told to move"
    return f"{count(total, 'job')} moved" if there == total else f"{there} of {total} jobs have arrived so far"


@click.command(cls=Command)
@click.option("--repair", is_flag=True, help="Repair what is safe to repair, and look again.")
@COORDINATOR_OPTION
@click.pass_context
def doctor(ctx: click.Context, repair: bool) -> int:
    """Look for what is wrong (error), what would not survive a fault (warning), and what is good to know (note). What
    may pass by itself is looked at twice, a session apart. Ends with 7 if there is an error."""

    async def work(session: Session) -> Examined:
        done = await session.control.doctor.repair() if repair else ()
        return await patiently(session.clock, "examining", session.control.doctor.findings()), done

    found, done = ask(ctx, work, coordinated=True)
    bad = any(it.severity is Severity.ERROR for it in found)
    answer(ctx, examined_shape(found, done, healthy=not bad), _show_findings, found, done)
    return UNHEALTHY if bad else OK


def _show_findings(found: Sequence[Finding], done: Sequence[str]) -> None:
    for line in done:
        say(f"repair: {line}")
    if found:
        facts([line for it in found for line in _lines(it)])
    counts = [sum(it.severity is severity for it in found) for severity in Severity]
    words = ", ".join(count(number, str(severity)) for number, severity in zip(counts, Severity, strict=True))
    say(("\n" if found else "") + words)


def _lines(it: Finding) -> list[tuple[str | Text, str]]:
    """What it is, and indented why it matters and what to do."""
    what = f"{it.about}: {it.what}" if it.about else it.what
    return [(coloured(it.severity), what), ("", f"  why: {it.why}"), *([("", f"  do:  {it.todo}")] if it.todo else [])]


@click.command(cls=Command)
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Write it there. [default: print it]")
@COORDINATOR_OPTION
@click.pass_context
def dump(ctx: click.Context, output: Path | None) -> None:
    """Write configuration, schedulers, nodes, limits, queues and the last events as one JSON. Secrets are masked, and
    hosts and addresses have other names: the same host the same name everywhere in it."""
    from importlib import metadata  # it takes long to import, and only this command needs it

    found = {name: "***" if it.setting.is_secret and it.value else it.value for name, it in settings(ctx).items()}

    whole = {
        "version": metadata.version("rota"),
        **ask(
            ctx,
            lambda session: session.control.dump.make(found, hosts=[socket.gethostname(), socket.getfqdn()]),
            coordinated=True,
        ),
    }
    if output is None:
        say_json(whole)
        return
    _write(output, json.dumps(whole, ensure_ascii=False, indent=2) + "\n")
    said(ctx, {"file": str(output)}, f"the dump is in {output}; look through it before you hand it on")


def _write(path: Path, text: str) -> None:
    """For nobody else to read: it is masked, but whose it is may still be guessed."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InvalidInput.of("--output", f"{path} cannot be written: {error.strerror}") from None
