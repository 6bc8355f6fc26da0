"""Decide whether a run that is due may start, waits, replaces others or is skipped, given who is live.

A `Floor` follows the live runs of the locked overlap keys through one decision, so that several runs decided together
see each other. It never looks at anything that was not locked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rota.model.job import Job, Overlap, OverlapPolicy
from rota.model.plan import Crowd, LiveRun, RunMove
from rota.model.states import RunState, SkipReason


def looks_at_runs(jobs: Iterable[Job]) -> bool:
    """Whether a decision about these jobs may act on runs that are live: then they must be named, not only counted."""
    return any(job.definition.overlap.policy is OverlapPolicy.REPLACE for job in jobs)


@dataclass(slots=True)
class _Crowd:
    running: int
    waiting: int
    runs: list[LiveRun]
    queue: list[LiveRun]
    new_running: int = 0
    new_waiting: int = 0


@dataclass(slots=True)
class Floor:
    """Who is live while a decision is made, and what the decision did to those who were."""

    seen: Mapping[str, Crowd]
    _crowds: dict[str, _Crowd] = field(default_factory=dict)
    moves: list[RunMove] = field(default_factory=list)
    cancels: list[LiveRun] = field(default_factory=list)
    replaced: dict[str, int] = field(default_factory=dict)
    """How many of the runs that this decision admitted, the first ones of each key, a later one replaced."""

    def admit(self, key: str, overlap: Overlap) -> tuple[RunState, SkipReason | None]:
        """Say how one more run under this key begins, and count it."""
        crowd = self._crowd(key)
        match overlap.policy:
            case OverlapPolicy.FORBID:
                return self._start(crowd, free=crowd.running + crowd.waiting == 0)
            case OverlapPolicy.ALLOW:
                return self._start(crowd, free=crowd.running < overlap.live_max and crowd.waiting == 0)
            case OverlapPolicy.QUEUE:
                if crowd.running + crowd.waiting == 0:
                    return self._start(crowd, free=True)
                return self._wait(crowd, room=crowd.waiting < overlap.queue_max)
            case OverlapPolicy.REPLACE:
                self._clear(key, crowd)
                if crowd.running == 0:
                    return self._start(crowd, free=True)
                return self._wait(crowd, room=True)

    def end(self, key: str, run: LiveRun, state: RunState) -> None:
        """Take a live run off the floor. When all that end are off, `release`."""
        self._leave(self._crowd(key), run, state)

    def release(self, key: str) -> None:
        """Start the longest waiting run of a key under which nothing runs any more."""
        crowd = self._crowd(key)
        if crowd.running == 0 and crowd.queue:
            run = crowd.queue.pop(0)
            crowd.waiting -= 1
            crowd.running += 1
            self.moves.append(_move(run, RunState.RUNNING))

    def withdraw(self, key: str, job_id: int) -> None:
        crowd = self._crowd(key)
        for run in [run for run in crowd.queue if run.job_id == job_id]:
            self._leave(crowd, run, RunState.CANCELLED)

    def _crowd(self, key: str) -> _Crowd:
        if key not in self._crowds:
            crowd = self.seen[key]
            self._crowds[key] = _Crowd(crowd.running, len(crowd.waiting), list(crowd.runs), list(crowd.waiting))
        return self._crowds[key]

    def _start(self, crowd: _Crowd, *, free: bool) -> tuple[RunState, SkipReason | None]:
        if not free:
            return RunState.SKIPPED, SkipReason.OVERLAP
        crowd.running += 1
        crowd.new_running += 1
        return RunState.RUNNING, None

    def _wait(self, crowd: _Crowd, *, room: bool) -> tuple[RunState, SkipReason | None]:
        if not room:
            return RunState.SKIPPED, SkipReason.OVERLAP
        crowd.waiting += 1
        crowd.new_waiting += 1
        return RunState.WAITING, None

    def _clear(self, key: str, crowd: _Crowd) -> None:
        """Cancel everything live: at once what no node was given, by request what has processes. What this very
        decision admitted never was."""
        self.replaced[key] = self.replaced.get(key, 0) + crowd.new_running + crowd.new_waiting
        crowd.running -= crowd.new_running
        crowd.waiting -= crowd.new_waiting
        crowd.new_running = crowd.new_waiting = 0
        for run in [*crowd.runs, *crowd.queue]:
            if run.started:
                self.cancels.append(run)
            else:
                self._leave(crowd, run, RunState.CANCELLED)
        crowd.runs = []

    def _leave(self, crowd: _Crowd, run: LiveRun, state: RunState) -> None:
        if run.state is RunState.WAITING:
            crowd.waiting -= 1
            crowd.queue = [other for other in crowd.queue if other.id != run.id]
        else:
            crowd.running -= 1
            crowd.runs = [other for other in crowd.runs if other.id != run.id]
        self.moves.append(_move(run, state))


def _move(run: LiveRun, state: RunState) -> RunMove:
    return RunMove(run_id=run.id, job_id=run.job_id, was=run.state, now=state)
