"""A coordinator on ZooKeeper: claims are ephemeral nodes, and transaction numbers are fences.

    coordinator.py      the verbs
    tree.py             what they do to nodes, and how a node is an entry
    link.py             sessions, as asyncio sees them, opened when they are needed; and what kazoo's errors mean
    wire.py             the same on kazoo's threads
    address.py          what a URL says

It needs ZooKeeper 3.6 or later, for watches that stay.
"""
