"""The judge of firing: is there exactly one row for every slot that was owed, and none too early?

A job's history is a line of spans. The product promises that a change at store instant t settles every slot up to and
including t under the old definition, and that the new one owes the slots after t. So a span owes the slots in
(after, until]; while a job is paused it has no span. Slots up to `SETTLED_S` before the end of the observation must
have their row; later ones may have it.

Rows are plain mappings as raw SQL reads them: job_id, version, slot_at, last_slot_at, slots, created_at, and
witness_at, which the database itself wrote when the row was inserted, whatever the product believed the time to be.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.checkers.slots import SECOND, Rule, slots

SETTLED_S = 2.0

Row = Mapping[str, Any]
Slot = tuple[int, int]
"""A job and an instant."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which one version of a job was enabled. It owes the slots in (after, until]; None: until the end."""

    rule: Rule
    after: int
    until: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found. `slots` counts the slots that had to have a row."""

    slots: int
    lost: list[Slot] = field(default_factory=list)
    doubled: list[Slot] = field(default_factory=list)
    phantom: list[Slot] = field(default_factory=list)
    early: list[Slot] = field(default_factory=list)
    foreign: list[Slot] = field(default_factory=list)
    miscounted: list[Slot] = field(default_factory=list)
    lateness_s: list[float] = field(default_factory=list)

    @property
    def kinds(self) -> dict[str, int]:
        """How many violations there are of each kind."""
        found = {
            "lost": self.lost,
            "doubled": self.doubled,
            "phantom": self.phantom,
            "early": self.early,
            "foreign": self.foreign,
            "miscounted": self.miscounted,
        }
        return {kind: len(slots_) for kind, slots_ in found.items()}

    @property
    def clean(self) -> bool:
        return not any(self.kinds.values())

    def __str__(self) -> str:
        kinds = " ".join(f"{kind}={count}" for kind, count in self.kinds.items())
        late = " ".join(f"{name}={value:.3f}s" for name, value in quantiles(self.lateness_s).items())
        return f"n={self.slots} {kinds} lateness {late}"


def judge(jobs: Mapping[int, Sequence[Span]], rows: Iterable[Row], end: int, settled_s: float = SETTLED_S) -> Verdict:
    """Compare the rows with what the jobs owed until `end`, the store's clock before the rows were read."""
    rows = list(rows)
    horizon = max([end, *(row["last_slot_at"] or row["slot_at"] for row in rows)])
    owed = {job_id: dict(_owed(spans, horizon)) for job_id, spans in jobs.items()}
    must_by = end - round(settled_s * SECOND)
    needed = {(job_id, slot) for job_id, line in owed.items() for slot in line if slot <= must_by}
    verdict = Verdict(slots=len(needed))
    found: Counter[Slot] = Counter()
    lines = {job_id: sorted(line) for job_id, line in owed.items()}
    for row in rows:
        _look_at(row, owed.get(row["job_id"], {}), lines.get(row["job_id"], []), found, verdict)
    verdict.lost.extend(sorted(needed - found.keys()))
    verdict.doubled.extend(sorted(slot for slot, times in found.items() if times > 1))
    return verdict


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """The median, the 99th percentile and the maximum."""
    line = sorted(values) or [0.0]
    return {"p50": line[len(line) // 2], "p99": line[min(len(line) * 99 // 100, len(line) - 1)], "max": line[-1]}


def _owed(spans: Sequence[Span], horizon: int) -> Iterator[tuple[int, Span]]:
    for span in spans:
        for slot in slots(span.rule, span.after, horizon if span.until is None else min(span.until, horizon)):
            yield slot, span


def _look_at(row: Row, owed: Mapping[int, Span], line: Sequence[int], found: Counter[Slot], verdict: Verdict) -> None:
    job_id, first = row["job_id"], row["slot_at"]
    last = first if row["last_slot_at"] is None else row["last_slot_at"]
    covered = line[bisect_left(line, first) : bisect_right(line, last)]
    if first not in owed or last not in owed:
        verdict.phantom.append((job_id, first))
    if row["slots"] != max(len(covered), 1):
        verdict.miscounted.append((job_id, first))
    if any(owed[slot].version not in (None, row["version"]) for slot in covered):
        verdict.foreign.append((job_id, first))
    found.update((job_id, slot) for slot in covered or [first])
    made_at = min(row["created_at"], row.get("witness_at", row["created_at"]))
    if made_at < last:
        verdict.early.append((job_id, last))
    verdict.lateness_s.append((made_at - last) / SECOND)
