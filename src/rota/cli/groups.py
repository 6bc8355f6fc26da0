"""`rota job`, `rota run` and `rota cluster`: the commands of these groups, each imported when it is asked for."""

from __future__ import annotations

import click

from rota.cli.lazy import Group


@click.group(
    cls=Group,
    lazy={
        "apply": ("rota.cli.job_apply", "Store definitions of files and folders, all or none."),
        "list": ("rota.cli.jobs", "List the jobs."),
        "show": ("rota.cli.jobs", "Show one job."),
        "preview": ("rota.cli.jobs", "Show the next instants of a job."),
        "pause": ("rota.cli.jobs", "Fire nothing until resumed."),
        "resume": ("rota.cli.jobs", "Fire again, from now on."),
        "trigger": ("rota.cli.jobs", "Start a run now."),
        "delete": ("rota.cli.jobs", "Forget jobs; their history stays."),
        "claim": ("rota.cli.jobs", "Give a job to a scheduler."),
        "release": ("rota.cli.jobs", "End the claim of a job's owner."),
    },
)
def job() -> None:
    """Apply, list, show, preview, pause, resume, trigger, delete, claim and release jobs.

    A job is named NAME, PROJECT/NAME or TENANT/PROJECT/NAME.
    """


@click.group(
    cls=Group,
    lazy={
        "list": ("rota.cli.runs", "List runs."),
        "show": ("rota.cli.runs", "Show one run, its items and attempts."),
        "explain": ("rota.cli.runs", "Say why a run waits."),
        "logs": ("rota.cli.run_logs", "Print what a run printed; -f goes on while it runs."),
        "cancel": ("rota.cli.runs", "Stop runs."),
        "retry": ("rota.cli.runs", "Run an ended run again."),
    },
)
def run() -> None:
    """List, show, explain, cancel, retry what was fired; read its output."""


@click.group(
    cls=Group,
    lazy={
        "show": ("rota.cli.cluster", "Show the schedulers, and who has how many jobs."),
        "rebalance": ("rota.cli.cluster", "Share the jobs out evenly."),
        "pause": ("rota.cli.cluster", "Fire nothing, of all or of a tenant or project."),
        "resume": ("rota.cli.cluster", "Fire again."),
        "doctor": ("rota.cli.cluster", "Look for what is wrong or weak, and repair what is safe."),
        "dump": ("rota.cli.cluster", "Write down all that matters, without secrets, for others to look at."),
    },
)
def cluster() -> None:
    """Show, rebalance, pause, resume, examine the cluster as a whole."""
