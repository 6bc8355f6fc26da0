"""`rota cluster`: the commands of this group, each imported when it is asked for."""

from __future__ import annotations

import click

from rota.cli.lazy import Group


@click.group(
    cls=Group,
    lazy={
        "show": ("rota.cli.cluster_show", "Show the schedulers, and who has how many jobs."),
        "rebalance": ("rota.cli.cluster_rebalance", "Share the jobs out evenly."),
        "pause": ("rota.cli.cluster_pause", "Fire nothing, of all or of a tenant or project."),
        "resume": ("rota.cli.cluster_pause", "Fire again."),
        "doctor": ("rota.cli.cluster_doctor", "Look for what is wrong or weak, and repair what is safe."),
        "dump": ("rota.cli.cluster_dump", "Write down all that matters, without secrets, for others to look at."),
    },
)
def cluster() -> None:
    """Show, rebalance, pause, resume, examine the cluster as a whole."""
