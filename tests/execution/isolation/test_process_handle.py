"""How the agent knows whom its zygote has forked."""

import os
import subprocess

from rota.execution.isolation import procfs
from rota.execution.isolation.process_handle import ProcessHandle
from rota.execution.isolation.records import Process, myself


def test_a_number_that_the_zygote_tells_is_taken_without_a_look_at_the_descriptor() -> None:
    """Before Linux 5.14 a hidden agent of an ordinary user cannot look: here it is a descriptor that says nothing."""
    near, far = os.pipe()
    handle = ProcessHandle()
    assert handle.of_supervisor({"is": "forked", "pid": os.getpid()}, [near]) == myself()
    handle.close()
    os.close(far)


def test_the_descriptor_tells_a_number_that_the_zygote_does_not_know() -> None:
    handle = ProcessHandle()
    assert handle.of_supervisor({"is": "forked"}, [os.pidfd_open(os.getpid())]) == myself()
    handle.close()


def test_the_start_of_a_process_that_has_ended_is_not_that_of_another_with_its_number() -> None:
    handle = ProcessHandle()
    with subprocess.Popen(["true"]) as child:
        descriptor = os.pidfd_open(child.pid)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert procfs.find(child.pid) is not None
        assert handle.of_supervisor({"is": "forked", "pid": child.pid}, [descriptor]) == Process(pid=child.pid, ticks=0)
    handle.close()
