"""A coordinator on ZooKeeper: claims are ephemeral nodes, and transaction numbers are fences.

    coordinator.py      the verbs
    tree.py             what they do to nodes, and how a node is an entry
    links.py            opens links when they are needed, and watches folders for their listeners
    link.py             one session, as asyncio sees it, and what kazoo's errors mean
    wire.py             the same on kazoo's threads
    address.py          what a URL says

It needs ZooKeeper 3.6 or later, for watches that stay.
"""
