"""A pool of equal worker processes, and the attempts that wait for one of them.

A worker with room takes what waits. While something waits, more workers are started, a few at a time: so short items
are done by the workers that exist, and long ones soon get a worker each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from rota.execution.attempts import ProcessLimit, RunnerParts, StartLimit
from rota.execution.file_versions import AGE_S, FileVersion, FileVersions
from rota.execution.isolation.tree_order import TreeSpec
from rota.execution.live_attempt import LiveAttempt
from rota.execution.worker_process import FILES_MAX, WorkerProcess
from rota.execution.worker_protocol import Setup, WorkerTask
from rota.model.work import AttemptEnd

AGAIN_S = 1.0
"""How long to wait before starting another worker after one could not be started."""


class Route(NamedTuple):
    """Where the attempts of a task go."""

    pool: WorkerPool
    task: WorkerTask
    sends_config: bool
    """Whether each attempt takes its config along to the worker."""


@dataclass(eq=False, repr=False)
class WorkerPool:
    """Worker processes of one tenant, for one app, under the same bounds."""

    over = False

    parts: RunnerParts
    process_limit: ProcessLimit
    start_limit: StartLimit
    spec: TreeSpec
    setup: Setup
    file_versions: FileVersions
    starting_max: int
    _look_s: float = 0.0
    _waiting: deque[tuple[LiveAttempt, Route]] = field(default_factory=deque)
    _workers: dict[WorkerProcess, asyncio.Task[None]] = field(default_factory=dict)
    _free: list[WorkerProcess] = field(default_factory=list)
    _starting: int = 0
    _started_count: int = 0
    _is_waiting_to_retry: bool = False

    @property
    def workers(self) -> list[WorkerProcess]:
        return list(self._workers)

    @property
    def is_empty(self) -> bool:
        return not self._workers and not self._waiting

    def add(self, live: LiveAttempt, route: Route) -> None:
        """Let an attempt wait for a worker; the caller calls `pump` afterwards."""
        self._waiting.append((live, route))

    def pump(self) -> None:
        """Give what waits to workers that have room; start more workers if that is not enough."""
        waiting, free = self._waiting, self._free
        if waiting:
            self._retire_changed()
        while waiting and free:
            worker = free[-1]
            if worker.is_retiring or worker.over or worker.room == 0:
                free.pop()
                continue
            if batch := self._batch(worker.room):
                worker.give(batch)
        if waiting:
            self._start_workers()

    def freed(self, worker: WorkerProcess) -> None:
        """The worker is ready, or can take attempts again."""
        if self._workers.get(worker) is not None and worker not in self._free:
            self._free.append(worker)
        if self._starting:
            self._count_starting()
            self.start_limit.ended(worker)
        self.pump()
        if worker.busy == 0 and not worker.is_retiring and self.process_limit.should_free_one():
            worker.retire()

    def gone(self, worker: WorkerProcess, start_failure: AttemptEnd | None) -> None:
        """The process is gone; `start_failure` says why if it was never ready."""
        if self._workers.pop(worker, None) is None:
            return
        self._count_starting()
        self.start_limit.ended(worker)
        if start_failure is not None:
            self._not_started(start_failure)
        self.process_limit.give_back()
        self.pump()

    def on_timer(self, what: int) -> None:
        """Try again to start workers."""
        self._is_waiting_to_retry = False
        self.pump()

    def idle(self) -> list[WorkerProcess]:
        """The workers with nothing to do, the longest idle first."""
        found = [worker for worker in self._free if worker.busy == 0 and not worker.is_retiring and not worker.over]
        return sorted(found, key=lambda worker: worker.idle_since)

    def kill(self) -> None:
        self._waiting.clear()
        for worker in self._workers:
            worker.kill()

    async def see_gone(self) -> None:
        if self._workers:
            await asyncio.wait(self._workers.values())

    def _batch(self, room: int) -> list[tuple[LiveAttempt, Route]]:
        waiting = self._waiting
        batch: list[tuple[LiveAttempt, Route]] = []
        while waiting and len(batch) < room:
            entry = waiting.popleft()
            if not entry[0].over:
                batch.append(entry)
        return batch

    def _retire_changed(self) -> None:
        """Retire workers that have loaded an older version of the app, or of a module in its folder."""
        now = self.parts.loop.time()
        if now < self._look_s:
            return
        self._look_s = now + AGE_S
        for worker in list(self._workers):
            if not worker.is_retiring and any(
                self.file_versions.of(file, now) != look for file, look in worker.files.items()
            ):
                worker.retire()

    def _files(self) -> dict[str, FileVersion]:
        """The current versions of the files that a new worker is known to load."""
        now = self.parts.loop.time()
        known = sorted({file for worker in self._workers for file in worker.files})[:FILES_MAX]
        return {file: self.file_versions.of(file, now) for file in (*known, *filter(None, [self.setup.app]))}

    def _start_workers(self) -> None:
        while (
            not self._is_waiting_to_retry
            and self._starting < self.starting_max
            and len(self._waiting) > self._starting * self.setup.concurrency
            and self.start_limit.has_room(self)
            and self.process_limit.take(self)
        ):
            self._starting += 1
            self._started_count += 1
            spec = TreeSpec(
                argv=self.spec.argv,
                env=self.spec.env,
                bounds=self.spec.bounds,
                hold_s=self.spec.hold_s,
                label=f"{self.spec.label}.{self._started_count}",
                channel=True,
            )
            worker = WorkerProcess(self.parts, self, spec, self.setup, self._files())
            self.start_limit.began(worker, self.parts.loop)
            self._workers[worker] = self.parts.loop.create_task(worker.run())

    def _count_starting(self) -> None:
        self._starting = sum(not worker.is_ready for worker in self._workers)

    def _not_started(self, why: AttemptEnd) -> None:
        """A worker could not be started. What waits here waits for other workers; without any, it ends."""
        if any(worker.is_ready and not worker.is_retiring for worker in self._workers):
            self._is_waiting_to_retry = True
            self.parts.timers.at(self.parts.loop.time() + AGAIN_S, self)
            return
        waiting, self._waiting = self._waiting, deque()
        for live, _ in waiting:
            self.parts.attempts.end(live, why, None)
