"""The rig of the boundaries."""

from tests.runners.boundary.conftest import folder, rig

__all__ = ["folder", "rig"]
