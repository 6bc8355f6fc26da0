"""`rota run`: the commands of this group, each imported when it is asked for."""

from __future__ import annotations

import click

from rota.cli.lazy import Group


@click.group(
    cls=Group,
    lazy={
        "list": ("rota.cli.run_show", "List runs."),
        "show": ("rota.cli.run_show", "Show one run, its items and attempts."),
        "explain": ("rota.cli.run_explain", "Say why a run waits."),
        "logs": ("rota.cli.run_logs", "Print what a run printed; -f goes on while it runs."),
        "cancel": ("rota.cli.run_change", "Stop runs."),
        "retry": ("rota.cli.run_change", "Run an ended run again."),
    },
)
def run() -> None:
    """List, show, explain, cancel, retry what was fired; read its output."""
