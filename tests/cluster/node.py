"""Runs `rota node` in this process, with or without a mutant.

    python -m tests.cluster.node --store URL --name NAME [--app FILE] [--mutant NAME]

Its first line tells both of its clocks, so that the rig sees whether the wall clock is really off.
"""

import argparse
import ctypes
import json
import signal
import sys
import time

from rota.cli.main import run

PR_SET_PDEATHSIG = 1


def main() -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a killed test leaves no node behind
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--app")
    parser.add_argument("--mutant")
    given = parser.parse_args()
    if given.mutant:
        become(given.mutant)
    print(json.dumps({"wall": time.time(), "monotonic": time.monotonic()}), flush=True)
    app = ["--app", given.app] if given.app else []
    return run(["node", "start", "--store", given.store, "--name", given.name, *app])


def become(mutant: str) -> None:
    """Put a mutant over the product. Mutants know this release only, and a node of another one has none of them."""
    from tests.cluster import dispatch_mutants, mutants, newer, upgrade_mutants

    every = (mutants, dispatch_mutants, newer, upgrade_mutants)
    next(it.MUTANTS[mutant] for it in every if mutant in it.MUTANTS)()


if __name__ == "__main__":
    sys.exit(main())
