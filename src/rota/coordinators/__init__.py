"""Coordinator adapters: in memory, on a SQL store, ZooKeeper and etcd; `recipes/` is built on the port alone."""
