"""The configuration: `rota.toml`, then `ROTA_*`, then flags, each over the one before, into one frozen value.

The only reader of the environment. Every value knows where it came from.
"""

from __future__ import annotations

import os
import re
import socket
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from rota.errors import InvalidInput, Problem
from rota.model.value import Value
from rota.model.work import LOG_MAX
from rota.settings import SETTINGS, Setting, typed, variable

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


class StoreConfig(Value, frozen=True, kw_only=True):
    """Where everything is kept."""

    url: str
    may_forget: bool


class NodeConfig(Value, frozen=True, kw_only=True):
    """Who this node is, where the others reach it, and what it does."""

    name: str
    listen: str = ""
    advertise: str = ""
    check_s: float = 20.0
    roles: str = "all"


class CoordinatorConfig(Value, frozen=True, kw_only=True):
    """Who tells the schedulers of each other."""

    url: str = ""
    namespace: str = "rota"
    session_s: float = 4.0
    on_lost: str = "continue"


class PlacementConfig(Value, frozen=True, kw_only=True):
    """Which scheduler fires which job, and who takes over."""

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
    """How a scheduler looks for what is due, and how much it fires at a time. The defaults fit most clusters."""

    look_s: float = 1.0
    look_max: int = 20_000
    batch_max: int = 500
    batches_at_once: int = 3


class LeaseConfig(Value, frozen=True, kw_only=True):
    """How long a silent node is believed alive. The same on all nodes."""

    lease_s: float = 10.0
    margin_s: float = 1.0


class DispatchConfig(Value, frozen=True, kw_only=True):
    """How ready items are given to nodes. The defaults fit most clusters."""

    batch_max: int = 500
    idle_s: float = 0.4


class ExecutorConfig(Value, frozen=True, kw_only=True):
    """What this node executes, how much at a time, as whom, and how it holds processes together."""

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
    """How long runs, their history and their output are kept."""

    days: float = 30.0
    runs_max: int = 10_000
    every_s: float = 60.0


class LogsConfig(Value, frozen=True, kw_only=True):
    """Where the output of tasks is kept. Nodes that shall read each other's output share the folder."""

    path: str = "rota-logs"
    max_bytes: int = LOG_MAX


class DefinitionsConfig(Value, frozen=True, kw_only=True):
    """Files of definitions that a node applies, and applies again when they change."""

    path: str = ""
    watch_s: float = 1.0
    sweep_s: float = 60.0
    repository: str = ""


class AlarmConfig(Value, frozen=True, kw_only=True):
    """How mails and webhooks about alarms are sent. For the nodes that may send, and for `rota alarm test`."""

    smtp_host: str = ""
    smtp_port: int = 25
    smtp_user: str = ""
    smtp_password: str = ""
    smtp_from: str = ""
    smtp_tls: str = "auto"
    smtp_ca: str = ""
    hosts: str = ""


class Config(Value, frozen=True, kw_only=True):
    """All settings of a process, by section. A part gets its own section only."""

    store: StoreConfig
    node: NodeConfig
    coordinator: CoordinatorConfig = CoordinatorConfig()
    placement: PlacementConfig = PlacementConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    lease: LeaseConfig = LeaseConfig()
    dispatch: DispatchConfig = DispatchConfig()
    executor: ExecutorConfig = ExecutorConfig()
    retention: RetentionConfig = RetentionConfig()
    logs: LogsConfig = LogsConfig()
    definitions: DefinitionsConfig = DefinitionsConfig()
    alarm: AlarmConfig = AlarmConfig()


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
            found[setting.name] = Sourced(setting, typed(setting, value), source)
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
    sections["node"]["name"] = sections["node"]["name"] or f"{socket.gethostname()}-{os.getpid()}"
    executor, logs, file = sections["executor"], sections["logs"], sqlite_path(sections["store"]["url"])
    executor["state_path"] = executor["state_path"] or state_path(os.geteuid(), os.environ)
    # Output is kept next to an SQLite file, so that whoever opens the one finds the other.
    logs["path"] = logs["path"] or str((Path() if file is None else file.parent) / "rota-logs")
    return Config(**{name: kind(**sections[name]) for name, kind in get_type_hints(Config).items()})


def state_path(uid: int, given: Mapping[str, str]) -> str:
    """Where the executors of a user note their process trees: a folder that no other user could have made before.

    Not below XDG_RUNTIME_DIR, if there is another: that goes when the user logs out, and the node may stay. Homes are
    shared by hosts, numbers of processes are not, so each host has a folder of its own. Nothing, if there is no place.
    """
    if uid == 0:
        return "/run/rota" if Path("/run").is_dir() else "/var/run/rota"  # macOS has the older one only
    home = given.get("HOME", "")
    for base in (given.get("XDG_STATE_HOME", ""), f"{home}/.local/state" if _is_own(home, uid) else ""):
        if base.startswith("/"):
            return f"{base}/rota/{socket.gethostname()}"
    runtime = given.get("XDG_RUNTIME_DIR", "")
    return f"{runtime}/rota" if _is_own(runtime, uid) else ""


def _is_own(path: str, uid: int) -> bool:
    try:
        return path.startswith("/") and Path(path).stat().st_uid == uid
    except OSError:
        return False


def sqlite_path(store_url: str) -> Path | None:
    """The file of a store that is one."""
    path = store_url.removeprefix("sqlite:///").partition("?")[0]
    return Path(path) if store_url.startswith("sqlite:///") and path not in ("", ":memory:") else None


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
