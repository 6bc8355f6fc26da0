"""From seeds to verdicts, in many processes, and from a plan that fails to the smallest part of it that still does."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import count, islice
from multiprocessing import get_context
from typing import NamedTuple

from rota.model.cluster import Placement
from rota.model.value import Value
from rota.sim.checkers import Violation, check
from rota.sim.history import EFFECTS, Counts
from rota.sim.plan import Mode, Scenario, draw
from rota.sim.world import happened

SHRINK_MAX = 60
"""How many simulations the search for the smallest plan may cost."""
BATCH = 10
"""How many seeds a process is given at a time."""

Progress = Callable[[int], None]


class Case(NamedTuple):
    """What is simulated: a seed under a placement, in a mode."""

    seed: int
    placement: Placement
    mode: Mode

    @property
    def command(self) -> str:
        """What replays it."""
        return f"rota sim run --seed {self.seed} --placement {self.placement} --mode {self.mode} --trace"


class Verdict(Value, frozen=True, kw_only=True):
    """What came of one simulation."""

    seed: int
    placement: Placement
    mode: Mode
    hash: str
    faults: int
    counts: Counts
    violations: tuple[Violation, ...] = ()

    @property
    def is_void(self) -> bool:
        """Whether the faults had no effect: then it says nothing."""
        return self.counts.effect == 0 and not self.violations

    @property
    def case(self) -> Case:
        return Case(self.seed, self.placement, self.mode)


def cases(first: int, placement: Placement | None, mode: Mode | None) -> Iterator[Case]:
    """The seeds from `first` on; what is not given alternates."""
    placements, modes = tuple(Placement), tuple(Mode)
    for seed in count(first):
        yield Case(
            seed, placement or placements[seed % len(placements)], mode or modes[seed // len(placements) % len(modes)]
        )


def judged(scenario: Scenario) -> Verdict:
    history = happened(scenario)
    return Verdict(
        seed=scenario.seed,
        placement=scenario.placement,
        mode=scenario.mode,
        hash=history.hash(),
        faults=len(scenario.faults),
        counts=history.counts,
        violations=tuple(check(history)),
    )


def verdict(case: Case) -> Verdict:
    return judged(draw(*case))


def shrunk(scenario: Scenario, kind: str) -> tuple[int, ...]:
    """The places of those faults of a plan without which it would not fail in this way any more. Bounded: what is found
    in time is small, not always the smallest."""
    left = SHRINK_MAX

    def fails(kept: Sequence[int]) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and any(it.kind == kind for it in judged(scenario.only(kept)).violations)

    return tuple(smallest(range(len(scenario.faults)), fails))


def smallest(parts: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> Sequence[int]:
    """Delta debugging: leave out ever smaller pieces for as long as it fails without them."""
    size = len(parts)
    while size and parts:
        start = 0
        while start < len(parts):
            rest = [*parts[:start], *parts[start + size :]]
            if fails(rest):
                parts = rest
            else:
                start += size
        size //= 2
    return parts


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
    valid = [it for it in found if not it.is_void]
    hashes = "".join(it.hash for it in found)
    return Sum(
        seeds=len(valid),
        violations=sum(len(it.violations) for it in found),
        seeds_per_min=round(len(valid) / max(seconds, 1e-9) * 60, 1),
        **{name: sum(getattr(it.counts, name) for it in found) for name in EFFECTS},
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
