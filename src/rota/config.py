"""The configuration: `rota.toml`, then `ROTA_*`, then flags, each over the one before, into one frozen value.

The only reader of the environment. Every value knows where it came from.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import socket
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from rota.errors import InvalidInput, Problem
from rota.folders import state_path
from rota.model.value import Value
from rota.model.work import LOG_MAX

_PASSWORD = re.compile(r"://[^/@:]*:[^/@]+@")
FILE = "rota.toml"
_OTHERS = re.compile(
    r"ROTA_(?:DEBUG|TREE|CHANNEL|RUN|ITEM|ATTEMPT|TOKEN|KEY|JOB|TASK|INDEX|SLOT|PARAMS|PARAM_.*|RESULT|NUMBER|INFO|ALARM"
    r"|MESSAGE"
    r"|(?:.*_)?SERVICE_(?:HOST|PORT(?:_.*)?)"
    r"|(?:.*_)?PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)"
)
"""Variables that are not settings: what rota sets for tasks and channels (a task may call rota), and what Kubernetes
sets for every service whose name begins with rota."""

NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


class StoreConfig(Value, frozen=True, kw_only=True):
    url: str
    may_forget: bool


class NodeConfig(Value, frozen=True, kw_only=True):
    name: str
    listen: str = ""
    advertise: str = ""
    check_s: float = 20.0
    roles: str = "all"


class CoordinatorConfig(Value, frozen=True, kw_only=True):
    url: str = ""
    namespace: str = "rota"
    session_s: float = 4.0
    on_lost: str = "continue"


class PlacementConfig(Value, frozen=True, kw_only=True):
    kind: str = "claim"
    faults: int = 1
    alarm: int = 0
    weight: float = 1.0
    automatic: bool = True
    strategy: str = "balanced"
    beat_s: float = 60.0
    score_s: float = 0.010
    jitter_s: float = 0.005


class SchedulerConfig(Value, frozen=True, kw_only=True):
    look_s: float = 1.0
    look_max: int = 20_000
    batch_max: int = 500
    batches_at_once: int = 2


class LeaseConfig(Value, frozen=True, kw_only=True):
    lease_s: float = 10.0
    margin_s: float = 1.0


class DispatchConfig(Value, frozen=True, kw_only=True):
    batch_max: int = 500
    idle_s: float = 0.4


class ExecutorConfig(Value, frozen=True, kw_only=True):
    seats: int = 16
    group: str = "default"
    number: int = 0
    boundary: str = ""
    modules: str = ""
    module_path: str = ""
    http_hosts: str = ""
    batch_max: int = 500
    state_path: str = ""
    user: str = ""


class RetentionConfig(Value, frozen=True, kw_only=True):
    days: float = 30.0
    runs_max: int = 10_000
    every_s: float = 60.0


class LogsConfig(Value, frozen=True, kw_only=True):
    path: str = "rota-logs"
    max_bytes: int = LOG_MAX


class DefinitionsConfig(Value, frozen=True, kw_only=True):
    path: str
    watch_s: float
    sweep_s: float
    repository: str = ""


class AlarmConfig(Value, frozen=True, kw_only=True):
    smtp_host: str = ""
    smtp_port: int = 25
    smtp_user: str = ""
    smtp_password: str = ""
    smtp_from: str = ""
    smtp_tls: str = "auto"
    smtp_ca: str = ""
    hosts: str = ""


class Config(Value, frozen=True, kw_only=True):
    store: StoreConfig
    node: NodeConfig
    coordinator: CoordinatorConfig
    placement: PlacementConfig
    scheduler: SchedulerConfig
    lease: LeaseConfig
    dispatch: DispatchConfig
    executor: ExecutorConfig
    retention: RetentionConfig
    logs: LogsConfig
    definitions: DefinitionsConfig
    alarm: AlarmConfig = AlarmConfig()


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
    Setting("store.url", "sqlite:///rota.db", "where everything is kept"),
    Setting("store.may_forget", False, "use a store that can lose what it has acknowledged"),
    Setting("node.name", "", "the name of this node in the history; default: host and process id"),
    Setting(
        "coordinator.url", "", "who coordinates: zookeeper://host:2181, etcd://host:2379; default: the store itself"
    ),
    Setting("coordinator.namespace", "rota", "the name of this cluster, where several share one server"),
    Setting("coordinator.session_s", 4.0, "how long a silent scheduler keeps its jobs", 1, 600),
    Setting(
        "coordinator.on_lost",
        "continue",
        "what a scheduler does without it: continue, stop or exit",
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
    Setting("placement.jitter_s", 0.005, "how much longer at most, by chance, so that equals differ", 0, 0.4),
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
    Setting("scheduler.batches_at_once", 2, "how many such transactions run at a time", 1, 4),
    Setting("lease.lease_s", 10.0, "how long a node is believed alive after a renewal of its lease", 2, 600),
    Setting(
        "lease.margin_s", 1.0, "how long before that its processes are killed, and after that it is rescued", 0.5, 60
    ),
    Setting("dispatch.batch_max", 500, "how many items one round gives out", 1, 10_000),
    Setting("dispatch.idle_s", 0.4, "how often an idle node looks for work where the store cannot tell", 0.01, 60),
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
    Setting("definitions.watch_s", 1.0, "how often the folder is looked at for changes", 0.1, 3600),
    Setting(
        "definitions.repository",
        "",
        "the name of the repository that the files of definitions are of; rota job apply --prune goes by it",
    ),
    Setting("definitions.sweep_s", 60.0, "how often all of it is applied anew", 1, 86400),
    Setting("alarm.smtp_host", "", "the server that takes mails about alarms"),
    Setting("alarm.smtp_port", 25, "its port", 1, 65535),
    Setting("alarm.smtp_user", "", "who logs in there; default: nobody"),
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


class Sourced(NamedTuple):
    """A value and where it came from."""

    setting: Setting
    value: str | bool | int | float
    source: str


def load(
    flags: Mapping[str, object], *, file: Path | None = None, environment: Mapping[str, str] | None = None
) -> dict[str, Sourced]:
    """Read every setting from its strongest source. `flags` that are None were not given."""
    path = file or Path(FILE)
    written = _read_file(path, required=file is not None)
    given = os.environ if environment is None else environment
    problems: list[Problem] = []
    found: dict[str, Sourced] = {}
    for setting in SETTINGS:
        value, source = _strongest(setting, flags, given, written, path)
        try:
            found[setting.name] = Sourced(setting, _typed(setting, value), source)
        except ValueError as error:
            problems.append(Problem(setting.name, f"{error} (from {source})"))
    problems += [Problem(name, f"unknown setting in {path}") for name in written.keys() - {it.name for it in SETTINGS}]
    problems += _mismatched(found)
    if problems:
        raise InvalidInput(problems)
    return found


def _mismatched(found: Mapping[str, Sourced]) -> list[Problem]:
    """Values that are right alone and wrong together."""
    lease, margin = found.get("lease.lease_s"), found.get("lease.margin_s")
    if lease is not None and margin is not None and float(margin.value) > float(lease.value) / 2:
        reason = f"must be at most half of lease.lease_s ({lease.value:g} s), not {margin.value:g} s"
        return [Problem("lease.margin_s", f"{reason} (from {margin.source})")]
    return []


def exposed(found: Mapping[str, Sourced]) -> list[str]:
    """Files with secrets that other users of this host can read."""
    secret = [it for it in found.values() if it.setting.is_secret or _PASSWORD.search(str(it.value))]
    files = {it.source: it.setting.name for it in secret if it.value and it.source.endswith(".toml")}
    told = [
        f"{file} has a secret ({name}) and others can read it; run: chmod 600 {file}"
        for file, name in files.items()
        if _is_open(Path(file))
    ]
    store = sqlite_path(str(found["store.url"].value)) if "store.url" in found else None
    if store is not None and _is_open(store):  # it was made by an earlier release, or by hand
        told.append(f"{store} is the store, and others can read it; run: chmod 600 {store}*")
    return told


def _is_open(file: Path) -> bool:
    """Whether it is there, and others can read or write it."""
    return file.is_file() and bool(file.stat().st_mode & 0o077)


def config_of(found: Mapping[str, Sourced]) -> Config:
    """Make the value that the parts of a node get their sections from."""
    sections: dict[str, dict[str, Any]] = {}
    for name, sourced in found.items():
        section, _, field = name.partition(".")
        sections.setdefault(section, {})[field] = sourced.value
    node = sections["node"]["name"] or f"{socket.gethostname()}-{os.getpid()}"
    return Config(
        store=StoreConfig(**sections["store"]),
        node=NodeConfig(**{**sections["node"], "name": node}),
        coordinator=CoordinatorConfig(**sections["coordinator"]),
        placement=PlacementConfig(**sections["placement"]),
        scheduler=SchedulerConfig(**sections["scheduler"]),
        lease=LeaseConfig(**sections["lease"]),
        dispatch=DispatchConfig(**sections["dispatch"]),
        executor=_executor(sections["executor"]),
        retention=RetentionConfig(**sections["retention"]),
        logs=_logs(sections["logs"], sections["store"]["url"]),
        definitions=DefinitionsConfig(**sections["definitions"]),
        alarm=AlarmConfig(**sections["alarm"]),
    )


def _logs(section: dict[str, Any], store_url: str) -> LogsConfig:
    """Output is kept next to an SQLite file, so that whoever opens the one finds the other."""
    file = sqlite_path(store_url)
    beside = Path() if file is None else file.parent
    return LogsConfig(**{**section, "path": section["path"] or str(beside / "rota-logs")})


def _executor(section: dict[str, Any]) -> ExecutorConfig:
    return ExecutorConfig(**{**section, "state_path": section["state_path"] or state_path(os.geteuid(), os.environ)})


def sqlite_path(store_url: str) -> Path | None:
    """The file of a store that is one."""
    path = store_url.removeprefix("sqlite:///").partition("?")[0]
    return Path(path) if store_url.startswith("sqlite:///") and path not in ("", ":memory:") else None


def variable(setting: Setting) -> str:
    """The environment variable of a setting."""
    return "ROTA_STORE" if setting.name == "store.url" else "ROTA_" + setting.name.replace(".", "_").upper()


def handed_on(store_url: str) -> dict[str, str]:
    """What programs get of the environment of this process, and where its store is, if that is a file: its place is no
    secret, and who may open it is up to the file."""
    file = sqlite_path(store_url)
    store = {} if file is None else {"ROTA_STORE": f"sqlite:///{file.absolute()}"}
    return {**{name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}, **store}


def given_variables() -> list[str]:
    """The settings that came in the environment; some of them hold passwords."""
    return [name for name in map(variable, SETTINGS) if name in os.environ]


def forget(variables: Iterable[str]) -> None:
    """Take them out of the environment, so that no process inherits them."""
    for name in variables:
        del os.environ[name]


def unknown_variables(given: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Variables `ROTA_*` that mean nothing here, each with the nearest that does, or nothing."""
    known = [variable(it) for it in SETTINGS]
    strangers = [name for name in (os.environ if given is None else given) if name.startswith("ROTA_")]
    return [
        (name, next(iter(get_close_matches(name, known, n=1, cutoff=0.6)), ""))
        for name in sorted(strangers)
        if name not in known and not _OTHERS.fullmatch(name)
    ]


def login_shell() -> str:
    """The program that this user types commands into."""
    return os.environ.get("SHELL", "")


def debugging() -> bool:
    """Whether the person at the keyboard wants to see tracebacks."""
    return os.environ.get("ROTA_DEBUG", "").lower() not in ("", "0", "false")


def _strongest(
    setting: Setting, flags: Mapping[str, object], given: Mapping[str, str], written: Mapping[str, object], path: Path
) -> tuple[object, str]:
    if flags.get(setting.name) is not None:
        return flags[setting.name], "flag"
    if variable(setting) in given:
        return given[variable(setting)], variable(setting)
    if setting.name in written:
        return written[setting.name], str(path)
    return setting.default, "default"


def _read_file(path: Path, *, required: bool) -> dict[str, object]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if required:
            raise InvalidInput.of("config", f"there is no file {path}") from None
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput.of("config", f"{path} cannot be read: {error}") from None
    flat: dict[str, object] = {}
    for section, values in content.items():
        if not isinstance(values, dict):
            raise InvalidInput.of(section, f"must be a table like [store] in {path}")
        flat |= {f"{section}.{name}": value for name, value in values.items()}
    return flat


def _typed(setting: Setting, value: object) -> str | bool | int | float:
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
