"""Store adapters: in memory, and on SQL databases."""
