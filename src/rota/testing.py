"""The testing kit for users: `with rota.testing.kit(app, now="2026-01-01T00:00Z") as kit: ...`"""

from __future__ import annotations

from rota.client.testing import Kit, KitRun, RunFailed, kit

__all__ = ["Kit", "KitRun", "RunFailed", "kit"]
