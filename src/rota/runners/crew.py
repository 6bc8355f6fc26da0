"""The crew of a node: sends every attempt to where it runs, and sees to the processes.

    begin ─┬─ shell ──────> programs: a tree for each attempt
           ├─ python ─────> a pool of warm workers: of one tenant and app (and task, if several items share a worker)
           └─ http ───────> the same, with a handler of our own
    desk: what was taken on, what is told          room: how many processes there may be

It decides nothing about attempts and never runs user code.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from rota.model.node import Place
from rota.model.states import Outcome
from rota.model.work import LOG_MAX, Attempt
from rota.ports import Listener, LogStore
from rota.runners import environment
from rota.runners.boundary.order import TreeSpec
from rota.runners.boundary.promises import BoundaryKind, told
from rota.runners.boundary.sweeping import Swept, sweep
from rota.runners.boundary.switch import boottime_ns
from rota.runners.boundary.yard import Yard
from rota.runners.desk import Desk
from rota.runners.endings import Ending, resting, stopped
from rota.runners.hand import START_S, Hand
from rota.runners.live import Live
from rota.runners.place import here, process_is_gone
from rota.runners.pool import Pool, Route
from rota.runners.programs import Programs
from rota.runners.room import Room
from rota.runners.scribe import Scribe
from rota.runners.settings import CrewSettings
from rota.runners.shop import Shop
from rota.runners.stamps import Stamps
from rota.runners.state_folder import refusal
from rota.runners.timers import Timers
from rota.runners.users import Users, are_root, root_means
from rota.runners.wire import Setup, Task
from rota.runners.workplace import Workplaces

log = structlog.get_logger()

REQUESTS_MAX = 32
"""How many requests of a tenant one worker makes at a time."""
ROUTES_MAX = 10_000
TIDY_S = 5.0
_ARGV = (sys.executable, "-P", "-m", "rota.runners.worker")


class ProcessCrew:
    """Executes attempts in processes of their own."""

    over = False

    def __init__(self, settings: CrewSettings, logs: LogStore, *, log_max: int = LOG_MAX) -> None:
        self.boundary = settings.boundary or ""
        self.swept = Swept()
        """What was found of earlier incarnations when this one opened."""
        self._settings = settings
        self._users = Users(settings.user)
        self._apps = dict(settings.apps)
        self._logs = logs
        self._log_max = log_max
        self._until_s = 0.0
        self._routes: dict[tuple[Any, ...], Route] = {}
        self._pools: dict[tuple[Any, ...], Pool] = {}
        self._tasks = 0
        self._stamps = Stamps()
        self._room = Room(settings.processes_max, self._evict)
        self._is_open = False
        self._unable = ""

    async def open(self, listener: Listener) -> None:
        settings = self._settings
        loop = asyncio.get_running_loop()
        place = Path(settings.state_dir)
        kind = None if settings.boundary is None else BoundaryKind(settings.boundary)
        if are_root(settings.user):
            log.warning(f"tasks that name no user run as {root_means()}; set executor.user to change that")
        self.swept = await sweep(place)
        self._workplaces = await asyncio.to_thread(Workplaces)
        try:
            self._yard = await Yard.open(kind, state_dir=place, node=settings.node)
        except BaseException:
            await self._workplaces.close()
            raise
        self.boundary = str(self._yard.kind)
        if words := told(self._yard.kind):
            log.warning(f"processes are held together by {words}")
        self._loop = loop
        self._timers = Timers(loop)
        self._scribe = Scribe(self._logs, loop, self._timers, self._log_max)
        self._desk = Desk(listener, loop, self._timers, self._scribe)
        self._shop = Shop(loop, self._yard, self._desk, self._scribe, self._timers, self._workplaces)
        self._programs = Programs(self._shop, self._room, settings.environment)
        self._shop.unable = self.unable
        self._folders = (self._yard.folder, self._workplaces.root)
        self._is_open = True
        self._timers.at(loop.time() + min(TIDY_S, settings.idle_s), self)

    def here(self) -> Place:
        return here()

    def gone(self, place: Place) -> bool:
        """Whether the process at that place is seen gone, and the sweep saw its boundary empty."""
        return process_is_gone(place, here()) and self.swept.is_empty(place.pid, place.pid_started, place.boot_id)

    def renew(self, until_s: float) -> None:
        self._until_s = until_s
        self._yard.renew(until_s)

    def unable(self) -> str:
        self._unable = refusal(self._folders) if self._is_open else ""
        return self._unable

    def set_apps(self, apps: dict[str, str]) -> None:
        """Say anew which file has which handler: definitions may change while a node runs."""
        self._apps = dict(apps)
        self._routes.clear()

    def begin(self, attempts: Sequence[Attempt]) -> None:
        if not self._is_open or self._until_s * 1e9 <= boottime_ns():
            self._refuse(attempts)
            return
        if self._unable and (why := self.unable()):
            self._refuse(attempts, resting(why))
            return
        touched: dict[Pool | Programs, None] = {}
        for attempt in attempts:
            live = self._desk.take(self._users.named(attempt))
            if live is not None and (place := self._send(live)) is not None:
                touched[place] = None
        for place in touched:
            place.pump()

    def cancel(self, item_ids: Sequence[int]) -> None:
        for item_id in item_ids:
            self._desk.cancel(item_id)

    def drop(self, attempts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        wanted = set(attempts)
        for live in self._desk.lives if self._is_open else ():
            if (live.attempt.item_id, live.attempt.token) in wanted:
                if live.place is None:
                    self._desk.end(live, stopped(), None)
                else:
                    live.place.kill(live)
        return sorted(wanted & self._desk.untold) if self._is_open else []

    async def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        for live in self._desk.lives:
            if live.place is None:
                self._desk.end(live, stopped(), None)
        places: list[Pool | Programs] = [*self._pools.values(), self._programs]
        for place in places:
            place.kill()
        await asyncio.gather(*(place.see_gone() for place in places))
        await self._yard.close()
        await self._workplaces.close()
        for live in self._desk.lives:
            self._desk.end(live, stopped(), None)
        await self._scribe.close()
        self._desk.close()
        self._timers.close()
        self._pools.clear()  # they belong to what was closed; an open that follows begins with none
        self._routes.clear()
        self._room = Room(self._settings.processes_max, self._evict)

    def ring(self, what: int) -> None:
        """Tidy up: workers that nobody needs, and those that do not do what they were told."""
        now = self._loop.time()
        for key, pool in list(self._pools.items()):
            for hand in pool.idle():
                if now - hand.idle_since >= self._settings.idle_s:
                    hand.retire()
            for hand in pool.hands:
                if hand.busy and not hand.started and now - hand.given_since > START_S:
                    hand.give_up("did not begin with what it was given")
            if pool.is_empty:
                del self._pools[key]
                self._routes = {name: route for name, route in self._routes.items() if route.pool is not pool}
        self._timers.at(now + min(TIDY_S, self._settings.idle_s), self)

    def _refuse(self, attempts: Sequence[Attempt], ending: Ending | None = None) -> None:
        why = "this node's lease is over: nothing may start until it is renewed" if self._is_open else "this node stops"
        for attempt in attempts:
            if (live := self._desk.take(attempt)) is not None:
                self._desk.end(live, ending or Ending(Outcome.LOST, message=why), None)

    def _send(self, live: Live) -> Pool | Programs | None:
        """Let an attempt wait where it will run."""
        attempt = live.attempt
        if why := self._users.refusal(attempt.bounds.user):
            self._desk.end(live, Ending(Outcome.FAILED, "start", why), None)
            return None
        if attempt.runner == "shell":
            self._programs.add(live)
            return self._programs
        route = self._route(attempt)
        if isinstance(route, Ending):
            self._desk.end(live, route, None)
            return None
        route.pool.add(live, route.task)
        return route.pool

    def _route(self, attempt: Attempt) -> Route | Ending:
        config = attempt.config
        key = (
            attempt.name,
            attempt.task,
            attempt.tenant,
            attempt.runner,
            config.get("handler"),
            config.get("function"),
            config.get("listener"),
            attempt.concurrency,
            attempt.hold_s,
            attempt.bounds,
            tuple(attempt.env.items()) if attempt.env else None,
        )
        route = self._routes.get(key)
        if route is not None:
            return route
        found = self._new_route(attempt)
        if isinstance(found, Route):
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            self._routes[key] = found
        return found

    def _new_route(self, attempt: Attempt) -> Route | Ending:
        what, file = "", None
        if attempt.runner == "python":
            found = self._function(attempt)
            if isinstance(found, Ending):
                return found
            what, file = found
        elif attempt.runner != "http":
            return Ending(Outcome.FAILED, "unknown", f"this node has no runner {attempt.runner!r}")
        self._tasks += 1
        task = Task(self._tasks, attempt.name, attempt.tenant, attempt.task, attempt.runner, what)
        return Route(self._pool(attempt, file), task)

    def _function(self, attempt: Attempt) -> tuple[str, str | None] | Ending:
        """The advertised name of the function, and the file of its app; none for functions of modules."""
        if "function" in attempt.config:
            return str(attempt.config["function"]), None
        what = str(attempt.config.get("listener") or attempt.config.get("handler"))
        if what not in self._apps:
            return Ending(Outcome.FAILED, "unknown", f"this node has no app with {what}")
        return what, self._apps[what]

    def _pool(self, attempt: Attempt, file: str | None) -> Pool:
        is_http = attempt.runner == "http"
        shared = is_http or attempt.concurrency > 1
        own = (attempt.name, attempt.task, attempt.concurrency) if shared and not is_http else None
        env = tuple(sorted(attempt.env.items()))
        key = (attempt.tenant, file, is_http, own, attempt.bounds, attempt.hold_s, env)
        pool = self._pools.get(key)
        if pool is None:
            concurrency = REQUESTS_MAX if is_http else attempt.concurrency
            pool = self._pools[key] = self._new_pool(attempt, file, concurrency, shared)
        return pool

    def _new_pool(self, attempt: Attempt, file: str | None, concurrency: int, shared: bool) -> Pool:
        settings = self._settings
        spec = TreeSpec(
            argv=_ARGV,
            env=environment.basic(settings.environment, attempt.bounds.user, attempt.env),
            bounds=attempt.bounds,
            hold_s=attempt.hold_s,
            label=f"worker.{attempt.tenant}.{len(self._pools) + 1}",
            channel=True,
        )
        app = None if file is None else str(Path(file).absolute())  # the worker begins in another folder
        setup = Setup(app, settings.modules, settings.paths, settings.hosts, concurrency, shared, self._log_max)
        return Pool(self._shop, self._room, spec, setup, self._stamps, settings.starting_max)

    def _evict(self) -> bool:
        """Let the worker go that was idle for longest."""
        idle: list[Hand] = [hand for pool in self._pools.values() for hand in pool.idle()[:1]]
        if not idle:
            return False
        min(idle, key=lambda hand: hand.idle_since).retire()
        return True
