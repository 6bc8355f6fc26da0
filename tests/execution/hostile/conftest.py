"""The rig of the boundaries."""

from tests.execution.isolation.conftest import folder, rig

__all__ = ["folder", "rig"]
