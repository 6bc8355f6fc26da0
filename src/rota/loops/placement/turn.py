"""Whose turn it is, as the scheduler asks it."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Turn(Protocol):
    """Says which jobs this scheduler should fire. To be wrong costs a failed update, or a while."""

    def owns(self, job_id: int, at: datetime) -> bool:
        """Whether this scheduler fires the slot of a job that is due at an instant."""
        ...


class Everyone:
    """Every scheduler fires everything: for a node that is alone, and where nobody coordinates."""

    def owns(self, job_id: int, at: datetime) -> bool:
        return True
