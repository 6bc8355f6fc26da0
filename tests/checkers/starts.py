"""The judge of first starts: everything that was fired was started once, and again only after it had been lost.

Every run that was fired and not skipped *owes* one first start. The first start of a run is the earliest start line of
its item, whatever its attempt: an attempt can be lost with its node before its first line ran. A further start is
*explained* if the attempt that started before it is on record as over without success. The verdict of a run:

| verdict | what it means                                                                          |
|---------|----------------------------------------------------------------------------------------|
| never   | owed, and no line was written                                                          |
| again   | started again although the attempt before was not on record as lost, failed or timed out |
| phantom | started, and never fired                                                               |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tests.checkers.executing import START, Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """What was found. `owed` counts the runs that had to start, `restarts` the explained further starts."""

    owed: int
    restarts: int = 0
    never: list[int] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    phantom: list[int] = field(default_factory=list)

    @property
    def kinds(self) -> dict[str, int]:
        return {"never": len(self.never), "again": len(self.again), "phantom": len(self.phantom)}

    @property
    def clean(self) -> bool:
        return not any(self.kinds.values())

    def __str__(self) -> str:
        kinds = " ".join(f"{kind}={count}" for kind, count in self.kinds.items())
        return f"first starts n={self.owed} {kinds} explained restarts={self.restarts}"


def first_starts(
    owed: Collection[int], may: Collection[int], lines: Iterable[Line], unsuccessful: Collection[tuple[int, int]]
) -> Starts:
    """Judge the start lines. `owed` are the runs that must have started, `may` those that were fired too late to be
    sure of; `unsuccessful` are the attempts (item, attempt) on record as over without success."""
    by_run = _by_run(lines)
    found = Starts(
        owed=len(owed),
        restarts=sum(len(own) - 1 for own in by_run.values()),
        never=sorted(set(owed) - by_run.keys()),
        phantom=sorted(by_run.keys() - set(owed) - set(may)),
    )
    for run, own in by_run.items():
        if any((before.item, before.attempt) not in unsuccessful for before, _ in pairwise(own)):
            found.again.append(run)
    return found


def _by_run(lines: Iterable[Line]) -> Mapping[int, list[Line]]:
    by_run: dict[int, list[Line]] = defaultdict(list)
    for line in sorted(line for line in lines if line.kind == START):
        by_run[line.run].append(line)
    return by_run
