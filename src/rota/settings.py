"""The settings: the name, default, help and bounds of each, and how a text becomes its value.

Nothing here reads a file or the environment; `config.py` does.
"""

from __future__ import annotations

import contextlib
import math
import re
from typing import NamedTuple

from rota.model.work import LOG_MAX

NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


class Setting(NamedTuple):
    """One value that can be configured."""

    name: str
    default: str | bool | int | float
    help: str
    low: float = 0
    high: float = math.inf
    choices: tuple[str, ...] = ()
    is_secret: bool = False


SETTINGS = (
    Setting(
        "store.url",
        "sqlite:///rota.db",
        "the store: sqlite:///FILE, postgresql://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE",
    ),
    Setting(
        "store.may_forget",
        False,
        "use a store that can lose what it has acknowledged; otherwise such a store is refused",
    ),
    Setting("node.name", "", "the name of this node in the history; default: host and process id"),
    Setting(
        "coordinator.url", "", "who coordinates: zookeeper://host:2181, etcd://host:2379; default: the store itself"
    ),
    Setting("coordinator.namespace", "rota", "the name of this cluster, where several share one server"),
    Setting("coordinator.session_s", 4.0, "how long a silent scheduler keeps its jobs", 1, 600),
    Setting(
        "coordinator.on_lost",
        "continue",
        "what a scheduler does while its coordinator cannot be reached: continue, stop or exit",
        choices=("continue", "stop", "exit"),
    ),
    Setting(
        "placement.kind",
        "claim",
        "how schedulers share the jobs: claim, scope, beat, or none",
        choices=("claim", "scope", "beat", "none"),
    ),
    Setting("placement.faults", 1, "n: how many schedulers may die and the others still hold all jobs", 1, 1000),
    Setting("placement.alarm", 0, "M: an alarm is raised when this scheduler takes more jobs than that; 0: never"),
    Setting("placement.weight", 1.0, "how much of the jobs this scheduler should have, beside the others", 0.01, 1000),
    Setting("placement.automatic", True, "claim: even out the jobs without being told"),
    Setting(
        "placement.strategy",
        "balanced",
        "scope: how the leader cuts the jobs: scope, balanced or stable",
        choices=("scope", "balanced", "stable"),
    ),
    Setting("placement.beat_s", 60.0, "beat: how long one scheduler fires before the next is found", 1, 3600),
    Setting("placement.score_s", 0.010, "how long a node waits, for each point of its busy score, to try", 0, 0.1),
    Setting(
        "placement.jitter_s",
        0.005,
        "how much longer at most it waits, by chance, so that equally busy nodes differ",
        0,
        0.4,
    ),
    Setting(
        "node.listen",
        "",
        "HOST:PORT that this node serves; default: port 7700, or any if it is taken, of the address towards the store",
    ),
    Setting("node.advertise", "", "HOST:PORT at which the others reach this node; default: where it listens"),
    Setting(
        "node.roles",
        "all",
        "what this node does: all, scheduler (it fires and executes nothing), executor (it executes and fires nothing)",
        choices=("all", "scheduler", "executor"),
    ),
    Setting("node.check_s", 20.0, "how often a node asks the others whether they live", 0.1, 3600),
    Setting("scheduler.look_s", 1.0, "how often a scheduler looks for jobs that others changed", 0.05, 60),
    Setting("scheduler.look_max", 20_000, "how many jobs one look brings", 1, 1_000_000),
    Setting("scheduler.batch_max", 500, "how many jobs one transaction fires", 1, 10_000),
    Setting("scheduler.batches_at_once", 3, "how many transactions that fire run at a time", 1, 4),
    Setting("lease.lease_s", 10.0, "how long a node is believed alive after a renewal of its lease", 2, 600),
    Setting(
        "lease.margin_s",
        1.0,
        "how long before the end of a lease its processes are killed, and how long after it its items are rescued",
        0.5,
        60,
    ),
    Setting("dispatch.batch_max", 500, "how many items one round gives out", 1, 10_000),
    Setting("dispatch.idle_s", 0.4, "how often a node looks for work that nobody tells it of", 0.01, 60),
    Setting("executor.seats", 16, "how many items this node executes at a time; 0: it executes none", 0, 100_000),
    Setting("executor.group", "default", "the group of executors that this node belongs to"),
    Setting("executor.number", 0, "the number of this node within its group; 0: the lowest that is free", 0, 1_000_000),
    Setting("executor.boundary", "", "namespace, cgroup, guardian or group; default: the strongest there is"),
    Setting("executor.modules", "", "modules that jobs may name functions of, with commas between"),
    Setting("executor.module_path", "", "folders where these are looked for, with : between; default: this folder"),
    Setting("executor.http_hosts", "", "private hosts that http jobs may reach, with commas between"),
    Setting("executor.batch_max", 500, "how many ends of attempts one transaction writes", 1, 10_000),
    Setting("executor.user", "", "whom tasks of a root node run as; default: root, without its capabilities"),
    Setting("executor.state_path", "", "where it notes its process trees; default: /run/rota or ~/.local/state/rota"),
    Setting("retention.days", 30.0, "how long ended runs, their logs and their history are kept", 0.0001, 36500),
    Setting("retention.runs_max", 10_000, "how many ended runs of one job are kept", 1, 100_000_000),
    Setting("retention.every_s", 60.0, "how often a node looks for what may be forgotten", 0.1, 86400),
    Setting("logs.path", "", "where output is kept; default: rota-logs beside the SQLite file, else in this folder"),
    Setting("logs.max_bytes", LOG_MAX, "how much output of one attempt is kept", 1024, 2**40),
    Setting("definitions.path", "", "a file or folder of definitions that a node applies"),
    Setting("definitions.watch_s", 1.0, "how often definitions.path is looked at for changes", 0.1, 3600),
    Setting(
        "definitions.repository",
        "",
        "the name of the repository that the files of definitions are of; rota job apply --prune goes by it",
    ),
    Setting("definitions.sweep_s", 60.0, "how often all definitions are applied anew, changed or not", 1, 86400),
    Setting("alarm.smtp_host", "", "the server that takes mails about alarms"),
    Setting("alarm.smtp_port", 25, "the port of that server", 1, 65535),
    Setting("alarm.smtp_user", "", "who logs in to that server; default: nobody"),
    Setting("alarm.smtp_password", "", "the password of that user", is_secret=True),
    Setting("alarm.smtp_from", "", "who the mails are from; default: rota at that server"),
    Setting(
        "alarm.smtp_tls",
        "auto",
        "how the connection is kept secret: none, starttls, tls; auto: starttls if a password would leave the host",
        choices=("auto", "none", "starttls", "tls"),
    ),
    Setting("alarm.smtp_ca", "", "a file with the CA of that server; default: those that this host believes"),
    Setting("alarm.hosts", "", "private hosts that webhooks may reach, with commas between"),
)


def variable(setting: Setting) -> str:
    return "ROTA_STORE" if setting.name == "store.url" else "ROTA_" + setting.name.replace(".", "_").upper()


def typed(setting: Setting, value: object) -> str | bool | int | float:
    """Read a value as the type of its default; a text may stand for any type."""
    kind = type(setting.default)
    if kind is str:
        if not isinstance(value, str) or "\0" in value:
            raise ValueError("must be a text")
        if setting.name in ("node.name", "definitions.repository") and value and not NODE_NAME.fullmatch(value):
            raise ValueError("must be 1 to 100 of A-Z a-z 0-9 . _ -, beginning with a letter or digit")
        if setting.choices and value not in setting.choices:
            raise ValueError(f"must be one of {', '.join(setting.choices)}, not {value!r}")
        return value
    if kind is bool:
        return _truth(value)
    number = _number(value, whole=kind is int)
    if not setting.low <= number <= setting.high:
        raise ValueError(f"must be from {setting.low:g} to {setting.high:g}, not {number:g}")
    return number


def _truth(value: object) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value


def _number(value: object, *, whole: bool) -> int | float:
    if isinstance(value, str) and value.isascii():
        with contextlib.suppress(ValueError):
            value = int(value) if whole else float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or (whole and not isinstance(value, int)):
        raise ValueError(f"must be a {'whole ' if whole else ''}number, not {value!r}")
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value if whole else float(value)
