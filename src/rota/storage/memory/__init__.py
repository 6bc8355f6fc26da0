"""A store in memory: for users' tests and the simulator. It forgets everything when the process ends."""

from rota.storage.memory.store import MemoryStore

__all__ = ["MemoryStore"]
