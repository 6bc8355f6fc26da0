"""`rota store`: the schema and the settings of the store."""

from __future__ import annotations

import asyncio

import click

from rota.cli.lazy import Group
from rota.cli.output import said
from rota.cli.session import ask, configuration, opened, person
from rota.core.masking import without_passwords


@click.group(cls=Group)
def store() -> None:
    """Migrate and check the store."""


@store.command()
@click.pass_context
def migrate(ctx: click.Context) -> None:
    """Bring the store to the schema of this release; safe at any time, and when several do it at once."""
    config = configuration(ctx)

    async def work() -> None:
        async with opened(config, actor=person()) as session:
            await session.store.migrate()

    asyncio.run(work())
    said(
        ctx,
        {"store": without_passwords(config.store.url), "migrated": True},
        "the store has the schema of this release",
    )


@store.command()
@click.pass_context
def restored(ctx: click.Context) -> None:
    """Say that the store was restored from a backup: no id, round or token that was ever given comes again.

    Run it once after a restore, before the nodes start.
    """
    config = configuration(ctx)

    async def work() -> int:
        async with opened(config, actor=person()) as session:
            await session.store.migrate()
            return await session.store.raise_generation("somebody said that a backup was restored")

    generation = asyncio.run(work())
    text = f"the store is of generation {generation} now; the nodes may start"
    said(ctx, {"store": without_passwords(config.store.url), "generation": generation}, text)


@store.command()
@click.pass_context
def check(ctx: click.Context) -> None:
    """Say whether the store has the right schema and keeps what it acknowledges."""

    async def work(session: object) -> None:
        """`ask` has checked already."""

    ask(ctx, work)
    url = without_passwords(configuration(ctx).store.url)
    said(ctx, {"store": url, "fit": True}, f"{url} is fit for use")
