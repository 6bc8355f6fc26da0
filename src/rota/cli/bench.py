"""`rota bench`: measure the product on a real store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from rota.cli.lazy import Group, Seconds
from rota.cli.output import Progress, figures
from rota.cli.serve import prepare
from rota.cli.session import Session, configuration, opened
from rota.errors import InvalidInput

if TYPE_CHECKING:
    from rota.bench.dispatch import DispatchWish
    from rota.bench.plain import Progress as Tell
    from rota.config import Config


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
    from rota.bench.fire import fire_herd

    _measured(ctx, configuration(ctx), lambda session, tell: fire_herd(session.store, session.clock, jobs, tell))


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
    _measured(ctx, config, lambda it, tell: measure(it.store, config.store.url, it.clock, wish, tell))


def _wish(
    url: str, *, nodes: int | None, seats: int | None, skew: bool, capacity: int, tenants: int, **asked: Any
) -> DispatchWish:
    from rota.bench.dispatch import DispatchWish
    from rota.bench.offer import BenchTenants

    count = nodes or (1 if url.startswith("sqlite:") else 2)
    crowd = BenchTenants(
        tenants=tenants,
        capacity=capacity,
        cap=max(3 * capacity // tenants, 1),
        skew_cap=max(capacity // 10, 1) if skew else None,
        concurrency=asked.pop("concurrency"),
        batch=asked.pop("batch"),
    )
    return DispatchWish(crowd=crowd, nodes=count, seats=seats or -(-capacity // count), **asked)


def _measured(ctx: click.Context, config: Config, measure: Callable[[Session, Tell], Awaitable[object]]) -> None:
    async def work() -> object:
        async with opened(config, actor="bench") as session:
            await prepare(session)
            with Progress(session.clock, "bench") as bar:
                return await measure(session, lambda what, done, of: bar.say(f"{what}, {done} of {of}"))

    figures(ctx, asyncio.run(work()))
