"""A coordinator on etcd: leases are sessions, and revisions are fences. It speaks etcd's own HTTP/JSON gateway."""

from rota.coordinators.etcd.coordinator import EtcdCoordinator

__all__ = ["EtcdCoordinator"]
