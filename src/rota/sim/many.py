"""Many seeds, in several processes, and the sum of their verdicts."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context

from rota.model.value import Value
from rota.sim.verdict import Case, Verdict, verdict

BATCH = 10
"""How many seeds a process is given at a time."""

Progress = Callable[[int], None]


class Sum(Value, frozen=True, kw_only=True):
    """What many seeds showed. Those whose faults had no effect are void, and do not count."""

    seeds: int
    violations: int
    seeds_per_min: float
    takeovers: int
    expired_leases: int
    expired_sessions: int
    unknown_commits: int
    failed_calls: int
    lost_attempts: int
    faults: int
    void: int
    seconds: float
    hash: str
    """Names all that happened in all of them."""


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def verdicts(cases: Iterator[Case], wanted: int, processes: int, progress: Progress) -> list[Verdict]:
    """Verdicts until as many count as wanted, in the order of the cases."""
    processes = min(processes, 1 + wanted // BATCH)
    if processes == 1:
        return _alone(cases, wanted, progress)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return _together(pool, cases, wanted, processes, progress)


def summed(found: Sequence[Verdict], seconds: float) -> Sum:
    """Add up."""
    valid = [it for it in found if not it.is_void]
    counts = [it.counts for it in found]
    hashes = "".join(it.hash for it in found)
    return Sum(
        seeds=len(valid),
        violations=sum(len(it.violations) for it in found),
        seeds_per_min=round(len(valid) / max(seconds, 1e-9) * 60, 1),
        takeovers=sum(it.takeovers for it in counts),
        expired_leases=sum(it.expired_leases for it in counts),
        expired_sessions=sum(it.expired_sessions for it in counts),
        unknown_commits=sum(it.unknown_commits for it in counts),
        failed_calls=sum(it.failed_calls for it in counts),
        lost_attempts=sum(it.lost_attempts for it in counts),
        faults=sum(it.faults for it in found),
        void=len(found) - len(valid),
        seconds=round(seconds, 1),
        hash=hashlib.blake2b(hashes.encode(), digest_size=16).hexdigest(),
    )


def _alone(cases: Iterator[Case], wanted: int, progress: Progress) -> list[Verdict]:
    found: list[Verdict] = []
    valid = 0
    while valid < wanted:
        found.append(verdict(next(cases)))
        valid += not found[-1].is_void
        progress(valid)
    return found


def _together(
    pool: ProcessPoolExecutor, cases: Iterator[Case], wanted: int, processes: int, progress: Progress
) -> list[Verdict]:
    """A few batches ahead of each process; as many as are wanted, and a few more for those that are void."""
    found: list[Verdict] = []
    waiting: list[Future[list[Verdict]]] = []
    valid = given = 0
    while valid < wanted:
        while len(waiting) < 2 * processes and given - len(found) + valid < wanted:
            batch = list(islice(cases, min(BATCH, wanted - (given - len(found) + valid))))
            waiting.append(pool.submit(_batch, batch))
            given += len(batch)
        found += waiting.pop(0).result()
        valid = sum(not it.is_void for it in found)
        progress(valid)
    return found


def _batch(cases: Sequence[Case]) -> list[Verdict]:
    return [verdict(case) for case in cases]
