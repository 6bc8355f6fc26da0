"""The coordinator that comes with a SQL store."""
