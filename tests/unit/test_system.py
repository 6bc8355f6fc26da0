"""What stands in for Linux elsewhere, tried here as far as it is the same."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from rota import system
from rota.execution import machine_load
from rota.execution.isolation import packets, procfs, ps
from rota.storage.sql import connect
from tests.execution.isolation.rig import wait_until


def test_ps_tells_of_a_process_what_proc_does() -> None:
    before = int(time.time())
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as child:
        after = int(time.time())
        wait_until(lambda: _sleeps(child.pid), "it sleeps", lambda: procfs.find(child.pid))
        told, shown = ps.find(child.pid), procfs.find(child.pid)
        child.kill()
    assert told is not None
    assert shown is not None
    assert (told.pid, told.parent, told.group) == (child.pid, os.getpid(), child.pid)
    assert (told.state, told.parent, told.group) == (shown.state, shown.parent, shown.group)
    assert any(ps.same_start(told.ticks, second) for second in range(before, after + 1))
    assert not ps.same_start(told.ticks, after + 60)
    assert ps.find(child.pid) is None


def _sleeps(pid: int) -> bool:
    seen = procfs.find(pid)
    return seen is not None and seen.state == "S"


MOUNTS = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
devfs on /dev (devfs, local, nobrowse)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse)
//ann@nas._smb._tcp.local/home on /Volumes/ann's (home) (smbfs, nodev, nosuid, mounted by ann)
nas:/export on /private/nfs (nfs)
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/System/Volumes/Data/Users/ann/rota.db", "apfs"),
        ("/Volumes/ann's (home)/rota.db", "smbfs"),
        ("/private/nfs/a/rota.db", "nfs"),
        ("/usr/local/rota.db", "apfs"),
    ],
)
def test_the_file_system_of_a_path_is_known_by_what_mount_prints(path: str, kind: str) -> None:
    assert connect.kind_at(Path(path), connect.mounts_told(MOUNTS)) == kind


def test_the_load_stands_for_ticks_that_nobody_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5 * (os.cpu_count() or 1), 0.0, 0.0))
    now = [0.0]
    measured = machine_load.MachineLoad(lambda: now[0], machine_load.LoadTicks(lambda: now[0]).ticks)
    now[0] = 1.0
    assert measured.cpu() == pytest.approx(0.5, abs=0.01)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> tuple[socket.socket, socket.socket]:
    monkeypatch.setattr(system, "IS_LINUX", False)
    return packets.pair()


def test_packets_in_a_stream_stay_apart_and_keep_their_descriptors(stream: tuple[socket.socket, socket.socket]) -> None:
    near, far = stream
    with near, far:
        read, write = os.pipe()
        packets.send(near, {"n": 1})
        packets.send(near, {"n": 2}, (read,))
        packets.send(near, {"n": "ü" * 10_000})
        assert packets.receive(far) == ({"n": 1}, [])
        message, [copy] = packets.receive(far)
        assert message == {"n": 2}
        assert not os.get_inheritable(copy)
        assert packets.receive(far) == ({"n": "ü" * 10_000}, [])
        near.close()
        assert packets.receive(far) == (None, [])
        for descriptor in (read, write, copy):
            os.close(descriptor)


def test_a_link_that_took_a_part_of_a_packet_is_ended(stream: tuple[socket.socket, socket.socket]) -> None:
    near, far = stream
    with near, far:
        near.setblocking(False)
        with pytest.raises(OSError, match="the other side does not listen"):
            packets.send(near, {"text": "x" * 10_000_000})
        far.settimeout(10)
        assert packets.receive(far) == (None, [])
