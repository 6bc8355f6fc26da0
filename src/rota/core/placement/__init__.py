"""Decide which scheduler fires a job. Pure functions; `loops/placer` acts on them."""
