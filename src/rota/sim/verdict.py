"""From a seed to a verdict, and from a plan that fails to the smallest part of it that still does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from rota.model.cluster import Placement
from rota.model.value import Value
from rota.sim.checkers import Violation, check
from rota.sim.history import Counts
from rota.sim.plan import Mode, Scenario, draw
from rota.sim.world import happened

SHRINK_MAX = 60
"""How many simulations the search for the smallest plan may cost."""


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
    """Simulate, and judge."""
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
    """The verdict on one case."""
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
