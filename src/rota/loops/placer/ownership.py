"""Which jobs a scheduler owns: what the scheduler asks of placement."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Ownership(Protocol):
    """Says which jobs this scheduler should fire. To be wrong costs a failed update, or a while."""

    def owns(self, job_id: int, at: datetime) -> bool:
        """Whether this scheduler fires the slot of a job that is due at an instant."""


class OwnsEverything:
    """Owns every job: for a node that is alone, and where nobody coordinates."""

    def owns(self, job_id: int, at: datetime) -> bool:
        return True
