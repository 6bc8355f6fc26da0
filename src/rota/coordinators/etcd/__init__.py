"""A coordinator on etcd: leases are sessions, and revisions are fences. It speaks etcd's own HTTP/JSON gateway."""
