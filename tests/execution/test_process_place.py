"""Whether a process of this host is gone, as its successor sees it."""

import subprocess
import sys
from pathlib import Path

from msgspec.structs import replace

from rota.execution.isolation import procfs
from rota.execution.isolation.sweeping import here, process_is_gone
from tests.execution.isolation.rig import wait_until

HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_first_thread_has_ended_is_not_gone_before_the_others() -> None:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", HEADLESS]) as process:
        try:
            status = Path(f"/proc/{process.pid}/stat")
            wait_until(lambda: ") Z " in status.read_text(), "its first thread has ended")
            seen = procfs.find(process.pid)
            assert seen is not None
            place = replace(here(), pid=process.pid, pid_started=seen.ticks)
            assert not process_is_gone(place, here())
        finally:
            process.kill()
        wait_until(lambda: process_is_gone(place, here()), "all of it has ended")
