"""Hostile workers: whatever one writes to its channel, the agent stays small and each attempt ends once."""

import struct
from pathlib import Path

import msgspec
import pytest

from rota.execution.file_versions import SEEN_MAX, FileVersions
from rota.execution.worker_protocol import REPORT_MAX, FrameReader, Orders, ProtocolViolation, WorkerReport, framed
from rota.model.states import Outcome
from tests.execution.harness import Memory, rig

HEAD = """
import socket, struct, msgspec
def channel():
    for fd in range(3, 64):
        try:
            found = socket.socket(fileno=os.dup(fd))
            if found.family == socket.AF_UNIX and found.getpeername() is not None: return found
        except OSError: pass
def say(*report):
    data = msgspec.msgpack.encode(report)
    channel().sendall(struct.pack(">I", len(data)) + data)
def now(): return time.monotonic()
"""

ATTACKS = {
    "a frame without end": "channel().sendall(struct.pack('>I', 2**32 - 1) + b'x' * 100_000)",
    "a frame that is a little too long": f"channel().sendall(struct.pack('>I', {REPORT_MAX + 1}))",
    "no msgpack": "channel().sendall(struct.pack('>I', 4) + b'\\xc1\\xc1\\xc1\\xc1')",
    "another shape": "channel().sendall(struct.pack('>I', 1) + b'\\x01')",
    "an item that it does not have": "say(False, None, [], [], [[999, 1.0, 2.0, None]], [], '')",
    "a start of another's item": "say(False, None, [[12345, 1.0, 0]], [], [], [], '')",
    "output of another's item": "say(False, None, [], [[4711, b'x']], [], [], '')",
    "text that is no text": "channel().sendall(struct.pack('>I', 6) + b'\\x97\\xc2\\xc0\\x90\\x90\\x91\\xa4')",
    "a deep nest": "channel().sendall(struct.pack('>I', 500_000) + b'\\x91' * 500_000)",
    "a file that cannot be": "say(False, None, [], [], [], [], '', [['a\\0b', [1, 2, 3]]])",
    "files with long names": (
        "[say(False, None, [], [], [], [], '', [[str(n) * 100_000, [1, 2, 3]]]) for n in range(100, 1000)]"
    ),
    "a flood of frames": (
        "[channel().sendall((struct.pack('>I', 7) + b'\\x97\\xc2\\xc0\\x90\\x90\\x90\\x90') * 1000) for _ in ' ' * 200]"
    ),
}


@pytest.mark.parametrize("attack", list(ATTACKS))
async def test_what_a_worker_writes_cannot_harm_the_agent(tmp_path: Path, attack: str) -> None:
    app = (
        HEAD + f"@app.task\ndef attack():\n    {ATTACKS[attack]}\n    time.sleep(60)\n@app.task\ndef fine(): return 1\n"
    )
    async with rig(tmp_path, app) as runner:
        await runner.do(runner.call("fine"))
        async with Memory() as memory:
            end = await runner.do(runner.call("attack"))
        after = await runner.do(runner.call("fine"))
    assert memory.grown < 24 * 1024 * 1024
    assert (end.outcome, end.cause) == (Outcome.FAILED, "channel"), end.message
    assert after.outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize(
    ("said", "outcome", "words"),
    [
        ('[[2, 1.0, 2.0, "NaN"]]', Outcome.FAILED, "not JSON"),
        ('[[2, 1.0, 2.0, "{"]]', Outcome.FAILED, "not JSON"),
        ('[[2, 1.0, 2.0, "[" * 100_000]]', Outcome.FAILED, "not JSON"),
        ('[[2, 1.0, 2.0, json.dumps("x" * 300_000)]]', Outcome.FAILED, "at most"),
        ('[[2, float("nan"), float("inf"), "1"]]', Outcome.SUCCEEDED, ""),
        ("[[2, -5.0, 1e300, None]]", Outcome.SUCCEEDED, ""),
        ('[[2, 1.0, 2.0, "1"], [2, 1.0, 2.0, "2"]]', Outcome.SUCCEEDED, ""),
        ('[[2, 1.0, 2.0, "1"], [999, 1.0, 2.0, "2"]]', Outcome.SUCCEEDED, ""),
    ],
)
async def test_what_a_worker_claims_is_checked(tmp_path: Path, said: str, outcome: Outcome, words: str) -> None:
    app = (
        HEAD + f"import json\n@app.task\ndef lie():\n    say(False, None, [], [], {said}, [], '')\n    time.sleep(60)\n"
    )
    app += "@app.task\ndef fine(): return 1\n"
    async with rig(tmp_path, app) as runner:
        await runner.do(runner.call("fine"))
        end = await runner.do(runner.call("lie"))
    assert end.outcome is outcome
    assert words in end.message
    assert end.started_s is not None
    assert 0 < end.started_s <= end.ended_s < 1e9


def test_frames_come_together_from_any_pieces() -> None:
    frames = [
        framed(WorkerReport(ready=True)),
        framed(Orders([], [], [1, 2])),
        framed(WorkerReport(started=[(1, 2.0, 0)])),
    ]
    whole = b"".join(frames)
    for size in (1, 2, 3, 5, 7, len(whole)):
        inbox = FrameReader(100)
        heard = [frame for at in range(0, len(whole), size) for frame in inbox.feed(whole[at : at + size])]
        assert heard == [frame[4:] for frame in frames]
    assert msgspec.msgpack.decode(heard[2], type=WorkerReport).started == [(1, 2.0, 0)]


def test_a_frame_beyond_the_bound_is_refused_before_it_is_read() -> None:
    inbox = FrameReader(10)
    with pytest.raises(ProtocolViolation):
        inbox.feed(struct.pack(">I", 11))


def test_no_number_of_files_that_workers_tell_of_is_remembered_for_ever() -> None:
    file_versions = FileVersions()
    for number in range(3 * SEEN_MAX):
        file_versions.of(f"/nowhere/{number}", 0.0)
    assert len(file_versions._seen) <= SEEN_MAX
