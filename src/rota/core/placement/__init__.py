"""Whose turn is it: which scheduler fires a job. Pure functions; the drivers are in `loops/placement`."""
