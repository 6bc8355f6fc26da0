"""Decisions, tested as plain functions."""
