"""`rota config`: what is configured, and where it came from."""

from __future__ import annotations

import click

from rota.cli.lazy import Group
from rota.cli.output import listed
from rota.cli.session import settings
from rota.config import Sourced
from rota.core.masking import without_passwords
from rota.settings import variable


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
