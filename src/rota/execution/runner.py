"""The runner of a node: hands every attempt to a program or a worker process, and ends the processes.

    begin ── kind of task? ─┬─ a program ──> programs: a process tree for each attempt
                            └─ a function ─> a pool of warm workers, of one tenant and app (and of one task, if several
                                             items share a worker)

`attempts` has every attempt and reports it; `process_limit` bounds the processes. It decides nothing about attempts and
never runs user code.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from rota.errors import InvalidInput
from rota.execution import environment
from rota.execution.attempt_outcome import bounded_text, node_stopped, node_unable
from rota.execution.attempts import AttemptTable, ProcessLimit, RunnerParts, StartLimit
from rota.execution.file_versions import FileVersions
from rota.execution.isolation.dead_mans_switch import boottime_ns
from rota.execution.isolation.process_trees import ProcessTrees
from rota.execution.isolation.promises import BoundaryKind, warning_of
from rota.execution.isolation.sweeping import SweepReport, here, process_is_gone, sweep
from rota.execution.isolation.tree_order import TreeSpec
from rota.execution.kinds.kind import ProgramKind, WorkerKind
from rota.execution.kinds.registry import KINDS
from rota.execution.log_writer import LogWriter
from rota.execution.programs import Programs
from rota.execution.timers import Timers
from rota.execution.users import Users, rights_of_root, run_as_root
from rota.execution.work_folders import WorkFolders, unwritable
from rota.execution.worker_pool import Route, WorkerPool
from rota.execution.worker_process import START_S, WorkerProcess
from rota.execution.worker_protocol import Setup, WorkerTask
from rota.logger import log
from rota.model.node import Place
from rota.model.states import Outcome
from rota.model.value import Value
from rota.model.work import LOG_MAX, Attempt, AttemptEnd, ExecutionSpec
from rota.ports import Listener, LogStore

PROCESSES_MAX = 256
STARTS_MAX = 2 * (os.cpu_count() or 2)
"""How many workers load their apps at a time: some wait for disks meanwhile, and the node itself has to go on."""

ROUTES_MAX = 10_000
"""How many routes are remembered; beyond that all are forgotten and found again."""
TIDY_S = 5.0
"""How often idle workers are looked for."""
_ARGV = (sys.executable, "-P", "-m", "rota.execution.worker")


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


class Prepared(NamedTuple):
    """How this node executes the items of a task, and where; or why it cannot."""

    wanted: ExecutionSpec
    """What it was asked for. It is kept, so that nothing else gets its id."""
    spec: ExecutionSpec
    place: Route | Programs | AttemptEnd


class ProcessRunner:
    """Executes attempts in processes of their own."""

    over = False

    def __init__(self, settings: RunnerSettings, logs: LogStore, *, log_max: int = LOG_MAX) -> None:
        self.boundary = settings.boundary or ""
        self.swept = SweepReport()
        """What was found of earlier incarnations when this one opened."""
        self._settings = settings
        self._users = Users(settings.user)
        self._apps = dict(settings.apps)
        self._logs = logs
        self._log_max = log_max
        self._until_s = 0.0
        self._routes: dict[tuple[Any, ...], Route] = {}
        self._prepared: dict[int, Prepared] = {}
        """By the identity of a spec, which the items of an assignment or of a version of a job share."""
        self._pools: dict[tuple[Any, ...], WorkerPool] = {}
        self._tasks = 0
        self._file_versions = FileVersions()
        self._process_limit = ProcessLimit(settings.processes_max, self._evict)
        self._start_limit = StartLimit(STARTS_MAX)
        self._is_open = False
        self._unable = ""
        self._here = here()

    async def open(self, listener: Listener) -> None:
        settings = self._settings
        loop = asyncio.get_running_loop()
        place = Path(settings.state_dir)
        kind = None if settings.boundary is None else BoundaryKind(settings.boundary)
        if run_as_root(settings.user):
            why = f"tasks that name no user run as {rights_of_root()}; set executor.user to change that"
            log.warning("tasks.run_as_root", why=why)
        await asyncio.to_thread(lambda: KINDS.names)  # a node with two kinds of one name must not start
        self.swept = await sweep(place)
        self._work_folders = await asyncio.to_thread(WorkFolders)
        try:
            self._process_trees = await ProcessTrees.open(kind, state_dir=place, node=settings.node)
        except BaseException:
            await self._work_folders.close()
            raise
        self.boundary = str(self._process_trees.kind)
        if words := warning_of(self._process_trees.kind):
            log.warning("boundary.weak", why=f"processes are held together by {words}")
        self._loop = loop
        self._timers = Timers(loop)
        self._log_writer = LogWriter(self._logs, loop, self._timers, self._log_max)
        self._attempts = AttemptTable(listener, loop, self._timers, self._log_writer)
        self._parts = RunnerParts(
            loop, self._process_trees, self._attempts, self._log_writer, self._timers, self._work_folders
        )
        self._programs = Programs(self._parts, self._process_limit, settings.environment)
        self._parts.unable = self.unable
        self._folders = (self._process_trees.folder, self._work_folders.root)
        self._is_open = True
        self._timers.at(loop.time() + min(TIDY_S, settings.idle_s), self)

    def here(self) -> Place:
        return self._here

    def gone(self, place: Place) -> bool:
        """True if the process at that place is gone, and the sweep saw its boundary empty."""
        return process_is_gone(place, self._here) and self.swept.is_empty(place.pid, place.pid_started, place.boot_id)

    def renew(self, until_s: float) -> None:
        self._until_s = until_s
        self._process_trees.renew(until_s)

    def unable(self) -> str:
        self._unable = unwritable(self._folders) if self._is_open else ""
        return self._unable

    def set_apps(self, apps: dict[str, str]) -> None:
        """Replace the map from handler to app file: definitions may change while a node runs."""
        self._apps = dict(apps)
        self._forget_routes()

    def begin(self, attempts: Sequence[Attempt]) -> None:
        if not self._is_open or self._until_s * 1e9 <= boottime_ns():
            self._refuse(attempts)
            return
        if self._unable and (why := self.unable()):
            self._refuse(attempts, node_unable(why))
            return
        touched: dict[WorkerPool | Programs, None] = {}
        for attempt in attempts:
            prepared = self._prepared.get(id(attempt.spec)) or self._prepare(attempt.spec)
            live = self._attempts.add(
                attempt if prepared.spec is attempt.spec else replace(attempt, spec=prepared.spec)
            )
            if live is None:
                continue
            place = prepared.place
            if isinstance(place, Route):
                place.pool.add(live, place)
                touched[place.pool] = None
            elif isinstance(place, Programs):
                place.add(live)
                touched[place] = None
            else:
                self._attempts.end(live, place, None)
        for touched_place in touched:
            touched_place.pump()

    def cancel(self, item_ids: Sequence[int]) -> None:
        for item_id in item_ids:
            self._attempts.cancel(item_id)

    def drop(self, attempts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        wanted = set(attempts)
        for live in self._attempts.live if self._is_open else ():
            if (live.attempt.item_id, live.attempt.token) in wanted:
                if live.process is None:
                    self._attempts.end(live, node_stopped(), None)
                else:
                    live.process.kill(live)
        return sorted(wanted & self._attempts.unreported) if self._is_open else []

    async def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        for live in self._attempts.live:
            if live.process is None:
                self._attempts.end(live, node_stopped(), None)
        places: list[WorkerPool | Programs] = [*self._pools.values(), self._programs]
        for place in places:
            place.kill()
        await asyncio.gather(*(place.see_gone() for place in places))
        await self._process_trees.close()
        await self._work_folders.close()
        for live in self._attempts.live:
            self._attempts.end(live, node_stopped(), None)
        await self._log_writer.close()
        self._attempts.close()
        self._timers.close()
        self._pools.clear()  # an `open` that follows begins without them
        self._forget_routes()
        self._process_limit = ProcessLimit(self._settings.processes_max, self._evict)
        self._start_limit = StartLimit(STARTS_MAX)

    def on_timer(self, what: int) -> None:
        """Retire workers that are idle for too long, and kill those that do not begin with what they were given."""
        now = self._loop.time()
        for key, pool in list(self._pools.items()):
            for worker in pool.idle():
                if now - worker.idle_since >= self._settings.idle_s:
                    worker.retire()
            for worker in pool.workers:
                if worker.busy and not worker.started and now - worker.given_since > START_S:
                    worker.give_up("did not begin with what it was given")
            if pool.is_empty:
                del self._pools[key]
                self._forget_routes()
        self._timers.at(now + min(TIDY_S, self._settings.idle_s), self)

    def _forget_routes(self) -> None:
        self._routes.clear()
        self._prepared.clear()

    def _refuse(self, attempts: Sequence[Attempt], outcome: AttemptEnd | None = None) -> None:
        why = "this node's lease is over: nothing may start until it is renewed" if self._is_open else "this node stops"
        for attempt in attempts:
            if (live := self._attempts.add(attempt)) is not None:
                self._attempts.end(live, outcome or AttemptEnd(Outcome.LOST, message=why), None)

    def _prepare(self, wanted: ExecutionSpec) -> Prepared:
        """Find out how and where this node executes the items of a task; remembered, unless it cannot."""
        spec = _timed(self._users.named(wanted))
        prepared = Prepared(wanted, spec, self._place(spec))
        if not isinstance(prepared.place, AttemptEnd):
            if len(self._prepared) >= ROUTES_MAX:
                self._prepared.clear()
            self._prepared[id(wanted)] = prepared
        return prepared

    def _place(self, spec: ExecutionSpec) -> Route | Programs | AttemptEnd:
        """The programs, or a pool of workers; why not, if there is none."""
        if why := self._users.refusal(spec.bounds.user):
            return AttemptEnd(Outcome.FAILED, "start", why)
        try:
            kind = KINDS.find(spec.runner)
        except InvalidInput as error:
            text = bounded_text(f"this node cannot run this task: {error}")
            return AttemptEnd(Outcome.FAILED, "unknown", text)
        if isinstance(kind, ProgramKind):
            return self._programs
        assert isinstance(kind, WorkerKind), f"{kind.name} is neither a ProgramKind nor a WorkerKind"
        return self._route(kind, spec)

    def _route(self, kind: WorkerKind, spec: ExecutionSpec) -> Route | AttemptEnd:
        config = spec.config
        key = (
            spec.name,
            spec.task,
            spec.tenant,
            spec.runner,
            config.get("handler"),
            config.get("function"),
            config.get("listener"),
            spec.concurrency,
            spec.hold_s,
            spec.bounds,
            tuple(spec.env.items()) if spec.env else None,
        )
        route = self._routes.get(key)
        if route is not None:
            return route
        found = self._new_route(kind, spec)
        if isinstance(found, Route):
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            self._routes[key] = found
        return found

    def _new_route(self, kind: WorkerKind, spec: ExecutionSpec) -> Route | AttemptEnd:
        try:
            function = kind.function(spec.config, self._apps)
        except LookupError as error:
            return AttemptEnd(Outcome.FAILED, "unknown", str(error.args[0]))
        self._tasks += 1
        task = WorkerTask(self._tasks, spec.name, spec.tenant, spec.task, spec.runner, function.what)
        return Route(self._pool(kind, spec, function.app), task, kind.sends_config)

    def _pool(self, kind: WorkerKind, spec: ExecutionSpec, file: str | None) -> WorkerPool:
        """The pool for attempts like this one: of one tenant, app and kind; of one task, if items share a worker."""
        concurrency = kind.per_worker or spec.concurrency
        shared = concurrency > 1
        one_task = (spec.name, spec.task, concurrency) if shared and kind.per_worker is None else None
        env = tuple(sorted(spec.env.items()))
        own = kind.name if kind.own_workers else ""
        key = (spec.tenant, file, own, one_task, spec.bounds, spec.hold_s, env)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = self._new_pool(spec, file, concurrency, shared)
        return pool

    def _new_pool(self, spec: ExecutionSpec, file: str | None, concurrency: int, shared: bool) -> WorkerPool:
        settings = self._settings
        tree = TreeSpec(
            argv=_ARGV,
            env=environment.basic(settings.environment, spec.bounds.user, spec.env),
            bounds=spec.bounds,
            hold_s=spec.hold_s,
            label=f"worker.{spec.tenant}.{len(self._pools) + 1}",
            channel=True,
        )
        app = None if file is None else str(Path(file).absolute())  # the worker begins in another folder
        setup = Setup(app, settings.modules, settings.paths, settings.hosts, concurrency, shared, self._log_max)
        return WorkerPool(
            self._parts,
            self._process_limit,
            self._start_limit,
            tree,
            setup,
            self._file_versions,
            settings.starting_max,
        )

    def _evict(self) -> bool:
        """Retire the worker that was idle for longest; false if none is idle."""
        idle: list[WorkerProcess] = [worker for pool in self._pools.values() for worker in pool.idle()[:1]]
        if not idle:
            return False
        min(idle, key=lambda worker: worker.idle_since).retire()
        return True


def _timed(spec: ExecutionSpec) -> ExecutionSpec:
    """The same, with the timeout of its kind if its task has none."""
    if spec.timeout_s is not None:
        return spec
    try:
        timeout_s = KINDS.find(spec.runner).timeout_s
    except InvalidInput:  # it will be refused
        return spec
    return spec if timeout_s is None else replace(spec, timeout_s=timeout_s)
