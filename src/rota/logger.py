"""The logger of all parts. How its lines look is said in `cli/log.py`, and which there are in `docs/log-events.md`."""

from __future__ import annotations

import structlog

log = structlog.get_logger()
