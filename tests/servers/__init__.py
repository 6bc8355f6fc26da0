"""Private servers for the tests, and a proxy that breaks the connections to them.

A server here listens on 127.0.0.1 only, keeps its data in a temporary folder, runs with its durable default settings,
and dies with the test process, however that ends.
"""
