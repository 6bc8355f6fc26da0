"""A coordinator on ZooKeeper: claims are ephemeral nodes, and transaction numbers are fences.

    coordinator.py   the verbs                      tree.py, node.py   how entries lie in ZooKeeper's tree
    link.py          one session, from asyncio      wire.py            the same on kazoo's threads; all of kazoo
    ear.py           who listens to what            address.py         what a URL says

It needs ZooKeeper 3.6 or later, for watches that stay.
"""

from rota.backends.zookeeper.coordinator import ZooKeeperCoordinator

__all__ = ["ZooKeeperCoordinator"]
