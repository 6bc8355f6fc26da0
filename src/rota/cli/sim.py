"""`rota sim run|scale`: the product under simulation: virtual time, faults from a seed, judges outside of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rota.cli.lazy import Group
from rota.cli.output import Progress, as_json, figures, say, say_json, table
from rota.errors import InvalidInput

if TYPE_CHECKING:
    from rota.sim.plan import Scenario
    from rota.sim.scale import Moved
    from rota.sim.verdict import Case, Verdict

SHOWN_MAX = 5
"""How many failing seeds are shown with their smallest plans: each costs some dozens of simulations."""


@click.group(cls=Group, implied="run")
def sim() -> None:
    """Try the product under faults in virtual time; what scale costs."""


@sim.command()
@click.option("--seeds", type=click.IntRange(1, 100_000_000), help="how many  [default: 100; with --seed 1]")
@click.option("--seed", type=click.IntRange(0, 2**53), help="the first  [default: 1]")
@click.option("--placement", type=click.Choice(["claim", "scope", "beat"]), help="[default: all in turn]")
@click.option("--mode", type=click.Choice(["safety", "liveness"]), help="[default: both in turn]")
@click.option("--only", metavar="N,N,…", help="with one seed: leave out all faults of its plan but these")
@click.option("--trace", is_flag=True, help="with one seed: print its plan and all that happens")
@click.option("--jobs", type=click.IntRange(1, 256), help="processes  [default: one for each processor]")
@click.pass_context
def run(
    ctx: click.Context,
    seeds: int | None,
    seed: int | None,
    placement: str | None,
    mode: str | None,
    only: str | None,
    trace: bool,
    jobs: int | None,
) -> None:
    """Try the product on clusters in virtual time, with faults drawn from seeds.

    Each seed is a small cluster, 120 seconds and a plan of at least 5 faults. Exit code 1: a promise was broken.
    """
    from rota.model.cluster import Placement
    from rota.sim.plan import Mode
    from rota.sim.verdict import cases

    wanted = seeds or (100 if seed is None else 1)
    found = cases(
        1 if seed is None else seed, Placement(placement) if placement else None, Mode(mode) if mode else None
    )
    if trace or only is not None:
        if wanted != 1:
            raise InvalidInput.of("seeds", "one seed at a time can be traced or cut down: name it with --seed")
        ctx.exit(_one(ctx, next(found), only))
    ctx.exit(_many(ctx, found, wanted, jobs))


@sim.command()
@click.option("--nodes", type=click.IntRange(2, 10_000), default=1000, show_default=True, help="schedulers")
@click.option("--jobs", type=click.IntRange(1, 10_000_000), default=1_000_000, show_default=True, help="jobs")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="write a picture: FILE.svg")
@click.pass_context
def scale(ctx: click.Context, nodes: int, jobs: int, plot: Path | None) -> None:
    """What a join, a leave and a crash cost under each placement, by the product's own functions."""
    from rota.sim.scale import SAMPLE, compared, picture

    found = compared(nodes, jobs)
    if plot is not None:
        plot.write_text(picture(found, nodes, jobs), encoding="utf-8")
    if as_json(ctx):
        from msgspec import to_builtins

        say_json({"nodes": nodes, "jobs": jobs, "sample": min(SAMPLE, jobs), "placements": to_builtins(found)})
        return
    _show_scale(found, nodes, jobs, min(SAMPLE, jobs))


def _one(ctx: click.Context, case: Case, only: str | None) -> int:
    from rota.sim.checkers import check
    from rota.sim.plan import draw
    from rota.sim.world import happened

    scenario = draw(*case)
    if only is not None:
        scenario = scenario.only(_places(only, len(scenario.faults)))
    history = happened(scenario)
    violations = check(history)
    if as_json(ctx):
        from msgspec import to_builtins

        answer = {"scenario": scenario, "hash": history.hash(), "violations": violations, "trace": [*history.trace()]}
        say_json(to_builtins(answer))
        return int(bool(violations))
    _show_plan(scenario)
    for line in history.trace():
        say(line)
    for violation in violations:
        say(f"violation: {violation}")
    say(f"hash {history.hash()}")
    return int(bool(violations))


def _many(ctx: click.Context, cases: Iterator[Case], wanted: int, processes: int | None) -> int:
    from rota.sim.verdict import processors, summed, verdicts
    from rota.wiring import system_clock

    clock = system_clock()
    began_s = clock.monotonic()
    with Progress(clock, "seeds", total=wanted) as bar:
        count = processes or processors()
        found = verdicts(cases, wanted, count, lambda done: bar.say(f"{done} of {wanted}", done))
    total = summed(found, clock.monotonic() - began_s)
    figures(ctx, total)
    failing = [it for it in found if it.violations]
    for it in failing:
        _explain(it, shrink=it in failing[:SHOWN_MAX])
    return int(bool(failing))


def _explain(it: Verdict, *, shrink: bool) -> None:
    """What went wrong, what replays it, and the smallest plan that still does. On stderr: the answer is the sum."""
    from rota.sim.plan import draw
    from rota.sim.verdict import shrunk

    say(f"\n{it.violations[0]}\n  {it.case.command}", file=sys.stderr)
    if shrink:
        scenario = draw(*it.case)
        kept = shrunk(scenario, it.violations[0].kind)
        say(f"  smallest plan: {it.case.command} --only {','.join(map(str, kept)) or 'none'}", file=sys.stderr)
        for place in kept:
            say(f"    {scenario.faults[place]}", file=sys.stderr)


def _places(text: str, count: int) -> list[int]:
    words = [] if text in ("", "none") else text.split(",")
    wrong = [word for word in words if not word.isascii() or not word.isdigit() or int(word) >= count]
    if wrong:
        raise InvalidInput.of(
            "only", f"must be numbers from 0 to {count - 1} with commas between, or none, not {text!r}"
        )
    return [int(word) for word in words]


def _show_plan(scenario: Scenario) -> None:
    say(f"{scenario.nodes} nodes with {scenario.seats} seats, placement {scenario.placement}, caps {scenario.caps}")
    for number, job in enumerate(scenario.jobs, start=1):
        say(f"job {number}: every {job.every_s} s, {job.work_s:g} s of work, tenant {job.tenant}, {job.overlap}")
    for place, fault in enumerate(scenario.faults):
        say(f"fault {place}: {fault}")


def _show_scale(found: Sequence[Moved], nodes: int, jobs: int, sample: int) -> None:
    say(f"{jobs:,} jobs on {nodes:,} schedulers; what is hashed is measured on {sample:,} jobs\n")
    columns = ("placement", "moved by join", "by leave", "by crash", "max/mean", "re-owned in", "operations")
    rows = [
        (
            it.placement,
            f"{it.join:,}",
            f"{it.leave:,}",
            f"{it.crash:,}",
            f"{it.imbalance:.3f}",
            f"{it.reown_s:.1f} s",
            f"{it.operations:,}",
        )
        for it in found
    ]
    table(columns, rows)
