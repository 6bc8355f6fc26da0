"""Dispatch: which ready items start now, in which order, and where."""
