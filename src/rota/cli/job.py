"""`rota job`: the commands of this group, each imported when it is asked for."""

from __future__ import annotations

import click

from rota.cli.lazy import Group


@click.group(
    cls=Group,
    lazy={
        "apply": ("rota.cli.job_apply", "Store definitions of files and folders, all or none."),
        "list": ("rota.cli.job_show", "List the jobs."),
        "show": ("rota.cli.job_show", "Show one job."),
        "preview": ("rota.cli.job_preview", "Show the next instants of a job."),
        "pause": ("rota.cli.job_change", "Fire nothing until resumed."),
        "resume": ("rota.cli.job_change", "Fire again, from now on."),
        "trigger": ("rota.cli.job_change", "Start a run now."),
        "delete": ("rota.cli.job_change", "Forget jobs; their history stays."),
        "claim": ("rota.cli.job_claim", "Give a job to a scheduler."),
        "release": ("rota.cli.job_claim", "End the claim of a job's owner."),
    },
)
def job() -> None:
    """Apply, list, show, preview, pause, resume, trigger, delete, claim and release jobs.

    A job is named NAME, PROJECT/NAME or TENANT/PROJECT/NAME.
    """
