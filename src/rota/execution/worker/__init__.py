"""The process that runs user code: `python -m rota.execution.worker`, started by a runner inside a boundary.

    start ── Setup ──> load the app ──> ready ──> serve orders until the channel closes
                          `── it cannot be loaded: broken, and the process ends

`serial` runs one item at a time in the main thread; `shared` runs several of one task, coroutines in its event loop and
plain functions in threads. It knows nothing of stores, leases and retries: it runs what it is given and reports how
that ended. It imports little, so that it starts quickly.
"""
