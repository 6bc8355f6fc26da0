"""A plain function in a thread is stopped whenever that is asked for, and nothing else is."""

import threading

import pytest

from rota.client.context import Stopped
from rota.execution.worker.interrupt import Interruptible


def test_one_that_is_stopped_before_its_call_is_not_called() -> None:
    call, called = Interruptible(), list[int]()
    call.interrupt()
    with pytest.raises(Stopped):
        call.run(lambda: called.append(1))
    assert called == []


def test_one_that_is_stopped_while_it_runs_runs_its_finally() -> None:
    call, begun, seen = Interruptible(), threading.Event(), list[str]()

    def work() -> None:
        try:
            begun.set()
            while True:
                pass
        finally:
            seen.append("finally")

    def thread() -> None:
        with pytest.raises(Stopped):
            call.run(work)
        seen.append("stopped")

    worker = threading.Thread(target=thread)
    worker.start()
    begun.wait()
    call.interrupt()
    worker.join()
    assert seen == ["finally", "stopped"]


def test_one_that_is_stopped_after_its_call_is_left_alone() -> None:
    call = Interruptible()
    assert call.run(lambda: 7) == 7
    call.interrupt()
    assert sum(range(1000)) == 499500
