"""`rota store`, `rota config` and `rota completion`: what an installation is made of."""

from __future__ import annotations

import asyncio
from pathlib import PurePath

import click
from click.shell_completion import get_completion_class

from rota.cli.lazy import Command, Group
from rota.cli.output import listed, said, say
from rota.cli.session import ask, configuration, opened, person, settings
from rota.config import Sourced, login_shell
from rota.core.masking import without_passwords
from rota.errors import InvalidInput
from rota.settings import variable

SHELLS = ("bash", "zsh", "fish")
HOW = {
    "bash": "echo 'eval \"$(rota completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(rota completion zsh)\"' >> ~/.zshrc",
    "fish": "rota completion fish > ~/.config/fish/completions/rota.fish",
}


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
    shape = {"store": without_passwords(config.store.url), "migrated": True}
    said(ctx, shape, "the store has the schema of this release")


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


@click.group(cls=Group)
def config() -> None:
    """Show the configuration."""


@config.command()
@click.pass_context
def show(ctx: click.Context) -> None:
    """Show every setting, its value and where the value came from: a flag, the environment, the file, the default."""
    found = settings(ctx).values()
    listed(ctx, [_shape(it) for it in found], ["SETTING", "VALUE", "FROM", "VARIABLE"], map(_row, found))


def _row(it: Sourced) -> tuple[str, str, str, str]:
    shown = _shown(it)
    value = str(shown).lower() if isinstance(shown, bool) else str(shown)
    return it.setting.name, value or "-", it.source, variable(it.setting)


def _shown(it: Sourced) -> object:
    """The value, without what must stay secret."""
    if it.setting.is_secret and it.value:
        return "***"
    return without_passwords(it.value) if isinstance(it.value, str) else it.value


def _shape(it: Sourced) -> dict[str, object]:
    return {
        "name": it.setting.name,
        "value": _shown(it),
        "source": it.source,
        "variable": variable(it.setting),
        "help": it.setting.help,
    }


@click.command(cls=Command, epilog="\b\nTo keep it:\n" + "\n".join(f"  {line}" for line in HOW.values()))
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print what makes a shell complete the words of rota. Without SHELL: for the shell of this user."""
    shell = shell or PurePath(login_shell()).name
    if shell not in SHELLS:
        raise InvalidInput.of("shell", f"name one of {', '.join(SHELLS)}")
    made = get_completion_class(shell)
    assert made is not None
    say(made(ctx.find_root().command, {}, "rota", "_ROTA_COMPLETE").source())
