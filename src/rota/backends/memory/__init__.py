"""A store in memory: for users' tests and the simulator. It forgets everything when the process ends.

Every verb is one step without an await, so each transaction is atomic by nature; there is nothing to lock.
"""

from rota.backends.memory.store import MemoryStore

__all__ = ["MemoryStore"]
