"""The release that this code belongs to."""

__version__ = "0.2.0"
