"""Runs one scheduler node: the product's own parts, put together as `rota node` does, with or without a mutant.

    python -m tests.cluster.node --store URL --name NAME [--mutant NAME]

Its first line tells both of its clocks, so that the rig sees whether the wall clock is really off.
"""

import argparse
import asyncio
import ctypes
import json
import signal
import time

from rota.clock import SystemClock
from rota.config import SchedulerConfig
from rota.loops.host import Host
from rota.loops.scheduler import Scheduler
from rota.wiring import open_store
from tests.cluster import mutants

PR_SET_PDEATHSIG = 1


async def serve(url: str, name: str) -> None:
    clock = SystemClock()
    store = open_store(url, clock, actor=name)
    host = Host([Scheduler(store, clock, SchedulerConfig())])
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, host.stop)
    try:
        await host.run()
    finally:
        await store.close()


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a killed test leaves no node behind
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--mutant", choices=sorted(mutants.MUTANTS))
    given = parser.parse_args()
    if given.mutant:
        mutants.MUTANTS[given.mutant]()
    print(json.dumps({"wall": time.time(), "monotonic": time.monotonic()}), flush=True)
    asyncio.run(serve(given.store, given.name))


if __name__ == "__main__":
    main()
