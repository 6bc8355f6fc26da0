"""`rota completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

from pathlib import PurePath

import click
from click.shell_completion import get_completion_class

from rota.cli.lazy import Command
from rota.cli.output import say
from rota.errors import InvalidInput

SHELLS = ("bash", "zsh", "fish")
HOW = {
    "bash": "echo 'eval \"$(rota completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(rota completion zsh)\"' >> ~/.zshrc",
    "fish": "rota completion fish > ~/.config/fish/completions/rota.fish",
}


@click.command(cls=Command, epilog="\b\nTo keep it:\n" + "\n".join(f"  {line}" for line in HOW.values()))
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print what makes a shell complete the words of rota. Without SHELL: for the shell of this user."""
    from rota.config import login_shell

    shell = shell or PurePath(login_shell()).name
    if shell not in SHELLS:
        raise InvalidInput.of("shell", f"name one of {', '.join(SHELLS)}")
    made = get_completion_class(shell)
    assert made is not None
    say(made(ctx.find_root().command, {}, "rota", "_ROTA_COMPLETE").source())
