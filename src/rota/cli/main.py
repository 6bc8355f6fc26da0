"""The entry point: which commands there are, each imported when it is asked for, and what becomes of their errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from rota.cli import faults
from rota.cli.lazy import Globals, Group, NobodyReads

COMMANDS = {
    "up": ("rota.cli.serve", "Run jobs of a file or folder here, and watch them."),
    "node": ("rota.cli.node", "Start a node of a cluster; list, drain, undrain, sweep."),
    "job": ("rota.cli.main", "Apply, list, show, preview, pause, resume, trigger, delete, claim, release."),
    "run": ("rota.cli.main", "List, show, explain, cancel, retry what was fired; read its output."),
    "cluster": ("rota.cli.main", "Show, rebalance, pause, resume, examine the cluster as a whole."),
    "tenant": ("rota.cli.limits", "Set, list, remove tenants and their quotas."),
    "limit": ("rota.cli.limits", "Set, list, remove the global limit and those of resources."),
    "alarm": ("rota.cli.alarm", "Set, list, remove who is told of what; test a channel; what was told."),
    "store": ("rota.cli.setup", "Migrate and check the store."),
    "config": ("rota.cli.setup", "Show the configuration."),
    "bench": ("rota.cli.bench", "Measure."),
    "sim": ("rota.cli.sim", "Try the product under faults in virtual time; what scale costs."),
    "completion": ("rota.cli.setup", "Print what makes a shell complete these words."),
}

SHORTCUTS = {
    "status": "cluster show",
    "doctor": "cluster doctor",
    "ls": "job list",
    "ps": "run list",
    "logs": "run logs",
    "jobs": "job list",
    "runs": "run list",
    "nodes": "node list",
    "apply": "job apply",
    "trigger": "job trigger",
}

EPILOG = (
    "\b\nShortcuts:\n"
    + "\n".join(f"  {word:<8} {meaning}" for word, meaning in SHORTCUTS.items())
    + "\n\n\b\nExit codes:\n"
    + "\n".join(f"  {code:<4} {meaning}" for code, meaning in faults.EXIT_CODES)
)


@click.group(
    cls=Group,
    lazy=COMMANDS,
    shortcuts=SHORTCUTS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="rota", message="%(prog)s %(version)s")
def cli() -> None:
    """rota: an elastic, fault-tolerant, distributed job scheduler."""


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
    "run",
    cls=Group,
    lazy={
        "list": ("rota.cli.runs", "List runs."),
        "show": ("rota.cli.runs", "Show one run, its items and attempts."),
        "explain": ("rota.cli.runs", "Say why a run waits."),
        "logs": ("rota.cli.runs", "Print what a run printed; -f goes on while it runs."),
        "cancel": ("rota.cli.runs", "Stop runs."),
        "retry": ("rota.cli.runs", "Run an ended run again."),
    },
)
def run_() -> None:
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


def run(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name, and return the exit code."""
    given = Globals()
    try:
        answer = cli.main(list(arguments), prog_name="rota", standalone_mode=False, obj=given)
        sys.stdout.flush()
    except (BrokenPipeError, NobodyReads):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return faults.INTERRUPTED
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it is, it is told
        if given.debug or _debugging():
            faults.tell_traceback(error)
        fault = faults.fault_of(error)
        faults.tell(fault, as_json=given.json or faults.wants_json(arguments))
        return fault.exit_code
    return answer if isinstance(answer, int) else faults.OK


def _debugging() -> bool:
    from rota.config import debugging  # only after an error: it is not cheap to import

    return debugging()


def main() -> None:
    sys.exit(run(sys.argv[1:]))
