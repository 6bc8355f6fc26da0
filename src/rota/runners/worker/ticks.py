"""The clock of a worker: CLOCK_MONOTONIC, the same for all processes of a host. No port reaches into this process."""

from __future__ import annotations

from time import monotonic

__all__ = ["monotonic"]
