"""`rota cluster show`: the schedulers, and who has how many jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from rota.cli.format import count
from rota.cli.lazy import Command
from rota.cli.output import as_json, coloured, facts, say, say_json, table
from rota.cli.session import COORDINATOR_OPTION, Session, ask
from rota.control import ClusterFacts
from rota.control.shapes.cluster import FIRST, cluster_shape
from rota.control.shapes.values import short
from rota.model.cluster import Drain, Peer, Placement
from rota.model.job import JobName

if TYPE_CHECKING:
    from rich.text import Text


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
    if as_json(ctx):
        say_json(cluster_shape(seen, names))
    else:
        _show(seen, names)


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
    return [
        "SCHEDULER",
        "STATE",
        *(more.get(seen.placement, []) if seen.placement else []),
        "WEIGHT",
        "BUSY",
        "ADDRESS",
    ]


def _row(seen: ClusterFacts, peer: Peer) -> tuple[str | Text, ...]:
    held, limit = str(seen.held[peer.name]), seen.limits.get(peer.name)
    more: dict[Placement, tuple[str, ...]] = {
        Placement.CLAIM: (held, _or_dash(limit), _or_dash(peer.alarm), str(peer.faults)),
        Placement.SCOPE: (held, str(peer.epoch), peer.range or "-"),
    }
    own = more.get(seen.placement, ()) if seen.placement else ()
    whole = f"{peer.weight:g}", f"{peer.busy:.1f} %", peer.address or "-"
    return peer.name, coloured(seen.state_of(peer)), *own, *whole


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)
