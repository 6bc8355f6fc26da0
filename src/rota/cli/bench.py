"""`rota bench`: measure the product on a real store."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from rota.cli.lazy import Group, Seconds
from rota.cli.output import as_json, facts, say_json
from rota.cli.progress import Progress
from rota.cli.session import Session, configuration, opened
from rota.errors import InvalidInput

if TYPE_CHECKING:
    from rota.bench.dispatch import DispatchFigures
    from rota.bench.fire import FireFigures
    from rota.bench.phases import DispatchWish


@click.group(cls=Group)
def bench() -> None:
    """Measure. A benchmark wants a store of its own, and a machine that does nothing else."""


@bench.command()
@click.option("--jobs", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True, help="how many are due")
@click.pass_context
def fire(ctx: click.Context, jobs: int) -> None:
    """How late are cron jobs that are all due in the same second?

    Lateness counts from the slot until the commit of its run was acknowledged, by the store's clock.
    """
    config = configuration(ctx)

    async def work() -> FireFigures:
        async with opened(config, actor="bench") as session:
            await session.store.migrate()
            await session.store.check()
            return await _measure(session, jobs)

    _say(ctx, asyncio.run(work()))


@bench.command()
@click.option("--items", type=click.IntRange(100, 10_000_000), default=50_000, show_default=True, help="how many")
@click.option("--tenants", type=click.IntRange(1, 10_000), default=10, show_default=True, help="of how many tenants")
@click.option("--nodes", type=click.IntRange(1, 100), help="processes that execute  [default: 2; on SQLite 1]")
@click.option("--skew", is_flag=True, help="half of the items belong to one tenant, which is at its cap")
@click.option("--seats", type=click.IntRange(1, 100_000), help="of each node  [default: capacity / nodes]")
@click.option("--capacity", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="of the cluster")
@click.option("--batch", type=click.IntRange(1, 10_000), default=500, show_default=True, help="items in one assign")
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=300, show_default=True, help="of one worker")
@click.option("--seconds", type=Seconds(), default=10.0, show_default=True, help="of load at 1,000/s; 0: none")
@click.option(
    "--history",
    type=click.IntRange(0, 100_000_000),
    default=0,
    show_default=True,
    help="ended items that the store has before: what is missing is made, and stays",
)
@click.option("--idle-starts", type=click.IntRange(0, 1000), default=30, show_default=True, help="single starts")
@click.pass_context
def dispatch(ctx: click.Context, /, **asked: Any) -> None:
    """How many items a second are assigned, dispatched under caps, executed and finished, and how soon does one begin?

    Nodes are started for it, and stopped; tasks do nothing, in real worker processes. `raw` is what the database does
    with the same rows and plain statements. Latency counts from when an item is due to the first line of its task.
    """
    from rota.bench.dispatch import measure

    config = configuration(ctx)
    if config.store.url == "memory:":
        raise InvalidInput.of("store", "several processes share the store here, which memory: cannot be")
    wish = _wish(config.store.url, **asked)

    async def work() -> DispatchFigures:
        async with opened(config, actor="bench") as session:
            await session.store.migrate()
            await session.store.check()
            with Progress(session.clock, "bench") as bar:
                return await measure(session.store, config.store.url, session.clock, wish, partial(_show, bar))

    _say(ctx, asyncio.run(work()))


def _wish(
    url: str,
    *,
    items: int,
    tenants: int,
    nodes: int | None,
    skew: bool,
    seats: int | None,
    capacity: int,
    batch: int,
    concurrency: int,
    seconds: float,
    idle_starts: int,
    history: int,
) -> DispatchWish:
    from rota.bench.offer import BenchTenants
    from rota.bench.phases import DispatchWish

    count = nodes or (1 if url.startswith("sqlite:") else 2)
    crowd = BenchTenants(
        tenants=tenants,
        capacity=capacity,
        cap=max(3 * capacity // tenants, 1),
        skew_cap=max(capacity // 10, 1) if skew else None,
        concurrency=concurrency,
        batch=batch,
    )
    return DispatchWish(
        items=items,
        crowd=crowd,
        nodes=count,
        seats=seats or -(-capacity // count),
        seconds=seconds,
        idle_starts=idle_starts,
        history=history,
    )


def _say(ctx: click.Context, found: FireFigures | DispatchFigures) -> None:
    from msgspec import to_builtins

    figures = to_builtins(found)
    if as_json(ctx):
        say_json(figures)
    else:
        facts(
            [(name.replace("_", " "), "" if value is None else _shown_value(value)) for name, value in figures.items()]
        )


def _shown_value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {it}" for name, it in value.items())
    return str(value)


async def _measure(session: Session, jobs: int) -> FireFigures:
    from rota.bench.fire import fire_herd

    with Progress(session.clock, "bench") as bar:
        return await fire_herd(session.store, session.clock, jobs, partial(_show, bar))


def _show(bar: Progress, what: str, done: int, of: int) -> None:
    bar.say(f"{what}, {done} of {of}")
