"""Commands that are imported when they are asked for, and options that every command takes."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import click

from rota.cli.loading import load

_ATTRIBUTE = {"list": "list_", "run": "run_"}
"""Commands whose name in the module must not hide a builtin, or another function."""


@dataclass(slots=True)
class Globals:
    """The values of the global options, which may stand after any word of the command."""

    store: str | None = None
    config: Path | None = None
    json: bool = False
    debug: bool = False


def _warn_of(path: str, implied: str) -> None:
    from rota.cli.output import say

    text = f"warning: write '{path} {implied}'; without a command '{path}' will only show its help"
    say(text, file=sys.stderr)


def _suggestion(word: str, names: Sequence[str]) -> str:
    near = get_close_matches(word.lower(), names, n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def globals_of(ctx: click.Context) -> Globals:
    return ctx.ensure_object(Globals)


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None and value is not False:
        setattr(globals_of(ctx), str(param.name), value)


def _global_options() -> list[click.Parameter]:
    option = partial(click.Option, expose_value=False, callback=_keep)
    file = click.Path(path_type=Path)
    return [
        option(["--store"], metavar="URL", help="The store. [default: sqlite:///rota.db]"),
        option(["--config"], metavar="FILE", type=file, help="The configuration. [default: rota.toml]"),
        option(["--json"], is_flag=True, help="Answer in JSON, errors too."),
        option(["--debug"], is_flag=True, help="Show the traceback of an error."),
    ]


class Seconds(click.FloatRange):
    """A time span in seconds, of at most some years."""

    def __init__(self) -> None:
        super().__init__(min=0, max=1e8)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if number != number:
            self.fail("nan is not a number of seconds", param, ctx)
        return number


class Command(click.Command):
    """A command that takes the global options too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _global_options()


class NobodyReads(Exception):
    """Raised when the reader of our output has closed its pipe."""


ALIASES = {"ls": "list", "rm": "delete", "remove": "delete", "describe": "show", "get": "show", "log": "logs"}
"""What people type out of habit. It counts where a group has the command that is meant, and none of that name."""


class Group(click.Group):
    """A group that takes the global options too, and knows some commands only by the module that has them.

    `shortcuts` are words of this group that stand for others (`status` for `cluster show`). `implied` is the command
    that options without a command once meant; they still do, with a warning.
    """

    command_class = Command

    def __init__(
        self,
        *args: Any,
        lazy: dict[str, tuple[str, str]] | None = None,
        shortcuts: dict[str, str] | None = None,
        implied: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.params += _global_options()
        self._lazy = {name: it for name, it in (lazy or {}).items() if importlib.util.find_spec(it[0]) is not None}
        self._shortcuts = shortcuts or {}
        self._implied = implied

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = {*self.list_commands(ctx), *ALIASES, "-h", "--help"}
        if (
            self._implied
            and not ctx.resilient_parsing
            and all(it.startswith("-") for it in args[:1])
            and not words.intersection(args)
        ):
            _warn_of(ctx.command_path, self._implied)
            args = [self._implied, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word, names = args[0], self.list_commands(ctx)
        if word not in names and word in self._shortcuts:
            args = [*self._shortcuts[word].split(), *args[1:]]
        elif word not in names and ALIASES.get(word) in names:
            args = [ALIASES[word], *args[1:]]
        elif word not in names and not word.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command {word!r}.{_suggestion(word, [*names, *self._shortcuts])}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Keep click from taking a closed pipe for an error of ours."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise NobodyReads from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._lazy, *sorted(super().list_commands(ctx))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(load(self._lazy[cmd_name][0]), _ATTRIBUTE.get(cmd_name, cmd_name))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by the one line that is known of them, without importing any."""
        if not self._lazy:
            super().format_commands(ctx, formatter)
            return
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._lazy.items()])
