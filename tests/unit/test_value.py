"""Values are named by their content."""

from __future__ import annotations

import subprocess
import sys

from rota.model.job import Misfire, MisfirePolicy
from rota.model.value import digest
from tests.factories import a_definition


def test_equal_values_have_equal_digests_however_they_were_made() -> None:
    spelled_out = Misfire(policy=MisfirePolicy("once"), grace_s=float("60"), count_max=int("100"))
    assert digest(spelled_out) == digest(Misfire())
    one = a_definition("same", tenant=str(b"default", "ascii"), misfire=spelled_out)
    assert digest(one) == digest(a_definition("same"))


def test_a_changed_field_changes_the_digest() -> None:
    assert digest(a_definition("same")) != digest(a_definition("same", title="other"))


SEVERAL_THREADS = """
import sys, threading
from rota.model.value import Value, decode

sys.setswitchinterval(1e-6)
made = {"Value": Value, "__name__": "__main__"}
for n in range(100):
    inner = "".join(f"    a{i}: 'int | str | None' = None\\n" for i in range(30))
    outer = "".join(f"    b{i}: 'Inner{n} | None' = None\\n" for i in range(30))
    for name, fields in ((f"Inner{n}", inner), (f"Outer{n}", outer)):
        exec(f"class {name}(Value, frozen=True, kw_only=True):\\n{fields}", made)
        globals()[name] = made[name]
together = threading.Barrier(4)

def read():
    for n in range(100):
        together.wait()
        assert decode('{"b29": {"a29": 1}, "b3": {"a1": 2}}', made[f"Outer{n}"]).b29.a29 == 1

threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("read by all")
"""


def test_a_kind_that_several_threads_read_for_the_first_time_crashes_nothing() -> None:
    """In a process of its own: a half-made decoder ends it with SIGSEGV."""
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL_THREADS], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout) == (0, "read by all\n"), done.stderr
