"""What a worker finds of processes that a task has left, however little the host tells."""

import subprocess
import sys

UNLISTED = """
import os, subprocess, sys
from rota.execution.worker import leftovers

def refuse(event, arguments):
    if event == "open" and str(arguments[0]).endswith("/children"):
        raise FileNotFoundError("the thread has ended")
    if event in ("subprocess.Popen", "os.posix_spawn") and "/bin/ps" in str(arguments[0]):
        raise FileNotFoundError("a slim image")

with subprocess.Popen(["sleep", "1000"]) as child:
    try:
        sys.addaudithook(refuse)
        print(leftovers.children() == {child.pid})
    finally:
        child.kill()
"""


def test_children_are_found_without_their_lists_and_without_ps() -> None:
    done = subprocess.run([sys.executable, "-c", UNLISTED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")
