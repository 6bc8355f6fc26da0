"""What a runner is told by the configuration of its node."""

from __future__ import annotations

from rota.model.value import Value

PROCESSES_MAX = 256


class RunnerSettings(Value, frozen=True, kw_only=True):
    """What a runner may run, where, and how many processes it may keep."""

    node: str
    state_dir: str
    boundary: str | None = None
    """The kind of boundary; none: the strongest that this host has."""
    apps: dict[str, str] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    """By advertised name (of a handler or a listener), the file whose app has it."""
    modules: tuple[str, ...] = ()
    """From which modules functions may be imported."""
    paths: tuple[str, ...] = ()
    """Where these modules are looked for, before the usual places."""
    hosts: tuple[str, ...] = ()
    """Hosts (`name` or `name:port`) that http tasks may call although their addresses are not public."""
    user: str | None = None
    """Whom tasks run as that name nobody; none: the user of the node."""
    environment: dict[str, str] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    """The variables of the node that are handed on."""
    processes_max: int = PROCESSES_MAX
    """How many workers and programs there may be at a time."""
    starting_max: int = 2
    """How many workers of one kind are started at a time; those that are there work meanwhile."""
    idle_s: float = 60.0
    """After how long a worker without work ends."""
