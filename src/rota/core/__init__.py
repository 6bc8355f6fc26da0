"""Decisions: pure functions of values. Nothing here waits, reads a clock or touches a store."""
