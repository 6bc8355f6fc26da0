"""The judge of the misfire policy: a slot is late if its row was decided more than the grace after it.

| policy | a late slot                                                   |
|--------|---------------------------------------------------------------|
| skip   | is skipped as missed                                          |
| once   | is skipped as missed, except the latest one that was due then |
| all    | runs (these tests never miss more than the policy's bound)    |

A slot that is not late is never skipped as missed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.checkers.firing import Row, Span
from tests.checkers.slots import SECOND, slots


@dataclass(frozen=True, slots=True)
class Misfire:
    policy: str = "once"
    grace_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """How many late slots were seen, and the rows that broke the policy."""

    late: int
    wrong: list[str]


def missed(jobs: Mapping[int, Sequence[Span]], policies: Mapping[int, Misfire], rows: Iterable[Row]) -> Missed:
    """Compare what became of late slots with the policy of their job."""
    late, wrong = 0, []
    for row in rows:
        policy = policies[row["job_id"]]
        last = row["slot_at"] if row["last_slot_at"] is None else row["last_slot_at"]
        is_late = last < row["created_at"] - round(policy.grace_s * SECOND)
        late += row["slots"] if is_late else 0
        expected = is_late and _is_skipped(policy, jobs[row["job_id"]], last, row["created_at"])
        if expected != (row["reason"] == "misfire"):
            told = "skipped as missed" if expected else "not skipped as missed"
            wrong.append(f"{policy} should have been {told}: {dict(row)}")
    return Missed(late=late, wrong=wrong)


def _is_skipped(policy: Misfire, spans: Sequence[Span], slot: int, decided_at: int) -> bool:
    if policy.policy == "all":
        return False
    if policy.policy == "skip":
        return True
    own = next((it for it in spans if it.after < slot and (it.until is None or slot <= it.until)), None)
    assert own is not None, f"slot {slot} belongs to no span; the judge of firing says so too"
    until = decided_at if own.until is None else min(own.until, decided_at)
    return any(slots(own.rule, slot, until))
