"""Frozen values: what rota knows about jobs, time and runs. They hold facts and decide nothing."""
