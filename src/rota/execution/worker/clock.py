"""The clock of a worker: CLOCK_MONOTONIC, the same for all processes of a host. There is no Clock port in a worker."""

from __future__ import annotations

from time import monotonic

__all__ = ["monotonic"]
