"""What tasks print: kept exactly, told apart, bounded, and never in the way."""

import asyncio
import threading
from pathlib import Path

import pytest

from rota.execution import attempts
from rota.execution.log_directory import DirectoryLogs
from rota.model.run import LogKey
from rota.model.states import Outcome
from tests.execution.harness import PATIENCE_S, Memory, rig

APP = """
@app.task
def quiet(): return 1
@app.task
def both(n=0):
    print("out", n)
    print("err", n, file=sys.stderr)
    sys.stdout.buffer.write(bytes(range(256)))
    sys.stdout.write("no newline")
@app.task
def child(n=0): subprocess.run(["echo", f"child {n}"])
@app.task
async def chatty(n, lines=20):
    for line in range(lines):
        print(n, line)
        await asyncio.sleep(0)
    print(n, "err", file=sys.stderr)
@app.task
def threads(n):
    for line in range(20):
        print(n, line)
        time.sleep(0.001)
@app.task
def closes():
    print("before")
    sys.stdout.close(); sys.stderr.close()
@app.task
def closes_all():
    os.write(1, b"before\\n")
    os.close(1); os.close(2)
@app.task
def replaces():
    devnull = os.open("/dev/null", os.O_WRONLY)
    os.dup2(devnull, 1)
    sys.stdout = open("/dev/null", "w")
@app.task
def after(): print("after")
@app.task
def flood(size, binary=True):
    piece = b"x" * 65536
    for _ in range(size // 65536): os.write(1, piece)
@app.task
async def printflood(size):
    for _ in range(size // 65536): print("x" * 65535)
@app.task
async def live():
    print("first line")
    while not os.path.exists(HERE + "/go"): await asyncio.sleep(0.01)
"""

MIB = 1024 * 1024


async def test_output_is_kept_byte_for_byte(tmp_path: Path) -> None:
    code = """
        import os
        for _ in range(300): os.write(1, bytes(range(256)) * 4)
        os.write(2, b"\\x00\\xff\\xfe end")
    """
    async with rig(tmp_path) as runner:
        attempt = runner.script(code)
        end = await runner.do(attempt)
        assert runner.log(attempt) == bytes(range(256)) * 1200 + b"\x00\xff\xfe end"
        key = LogKey(attempt.run_id, attempt.item_id, 1)
        assert end.log_bytes == runner.logs.total(key) == 256 * 1200 + 7


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_what_functions_print_is_theirs(tmp_path: Path, concurrency: int) -> None:
    async with rig(tmp_path, APP) as runner:
        for number in range(3):
            attempt = runner.call("both", params={"n": number}, concurrency=concurrency)
            end = await runner.do(attempt)
            log = runner.log(attempt)
            assert sorted([log.index(b"out %d\n" % number), log.index(b"err %d\n" % number)]) == [0, 6]
            assert bytes(range(256)) in log
            assert b"no newline" in log
            assert end.log_bytes == len(log) == 12 + 256 + 10


@pytest.mark.parametrize("name", ["chatty", "threads"])
async def test_items_that_share_a_worker_each_have_their_own_output(tmp_path: Path, name: str) -> None:
    async with rig(tmp_path, APP) as runner:
        attempts = [runner.call(name, params={"n": number}, concurrency=20) for number in range(20)]
        await runner.do_all(attempts)
        for number, attempt in enumerate(attempts):
            lines = [f"{number} {line}" for line in range(20)] + ([f"{number} err"] if name == "chatty" else [])
            assert runner.log(attempt).decode().splitlines() == lines


async def test_what_child_processes_print_is_the_items(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        for number in range(3):
            attempt = runner.call("child", params={"n": number})
            await runner.do(attempt)
            assert runner.log(attempt) == b"child %d\n" % number
        shared = runner.call("child", concurrency=3)
        await runner.do(shared)
        assert runner.log(shared) == b"child 0\n"


async def test_an_attempt_without_output_leaves_no_file(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        ends = await runner.do_all([runner.call("quiet"), runner.call("quiet", concurrency=2), runner.shell("true")])
    assert {(end.outcome, end.log_bytes) for end in ends} == {(Outcome.SUCCEEDED, 0)}
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("name", ["closes", "closes_all", "replaces"])
async def test_a_task_that_closes_its_outputs_breaks_nothing(tmp_path: Path, name: str, concurrency: int) -> None:
    async with rig(tmp_path, APP) as runner:
        attempt = runner.call(name, concurrency=concurrency)
        end = await runner.do(attempt)
        after = runner.call("after", concurrency=concurrency)
        again = await runner.do(after)
        assert end.outcome is again.outcome is Outcome.SUCCEEDED, (end.message, again.message)
        assert runner.log(attempt) == (b"" if name == "replaces" else b"before\n")
        assert runner.log(after) == b"after\n"


async def test_a_program_that_closes_its_outputs_breaks_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as runner:
        attempt = runner.shell("sh", "-c", "echo before; exec >&- 2>&-; sleep 0.1; exit 4")
        end = await runner.do(attempt)
        assert (end.code, runner.log(attempt)) == (4, b"before\n")


@pytest.mark.parametrize("kind", ["program", "plain", "shared"])
async def test_a_line_of_a_gigabyte_is_cut_and_the_agent_stays_small(tmp_path: Path, kind: str) -> None:
    """S19, acceptance 5. In workers a quarter of it, as that takes long enough."""
    async with rig(tmp_path, APP, log_max=2 * MIB) as runner:
        size = 1024 * MIB if kind == "program" else 256 * MIB
        attempt = {
            "program": runner.shell("head", "-c", str(size), "/dev/zero", timeout_s=50.0),
            "plain": runner.call("flood", params={"size": size}, timeout_s=50.0),
            "shared": runner.call("printflood", params={"size": size}, concurrency=3, timeout_s=50.0),
        }[kind]
        async with Memory() as memory:
            end = await runner.do(attempt)
        log = runner.log(attempt)
    assert end.outcome is Outcome.SUCCEEDED, end.message
    assert log.endswith(b"\n[rota: output beyond %d bytes is not kept]\n" % (2 * MIB))
    assert end.log_bytes == len(log) == 2 * MIB + len(b"\n[rota: output beyond 2097152 bytes is not kept]\n")
    assert memory.grown < 24 * MIB


async def test_output_exactly_at_the_bound_is_whole_and_has_no_mark(tmp_path: Path) -> None:
    async with rig(tmp_path, APP, log_max=2 * 65536) as runner:
        for attempt in (
            runner.shell("head", "-c", str(2 * 65536), "/dev/zero"),
            runner.call("flood", params={"size": 2 * 65536}),
            runner.call("printflood", params={"size": 2 * 65536}, concurrency=2),
        ):
            end = await runner.do(attempt)
            assert end.log_bytes == len(runner.log(attempt)) == 2 * 65536


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_output_can_be_read_while_the_attempt_runs(tmp_path: Path, concurrency: int) -> None:
    async with rig(tmp_path, APP) as runner:
        attempt = runner.call("live", concurrency=concurrency)
        runner.begin(attempt)
        async with asyncio.timeout(20):
            while runner.log(attempt) != b"first line\n":
                await asyncio.sleep(0.02)
        assert runner.logs.total(LogKey(attempt.run_id, attempt.item_id, 1)) is None
        (tmp_path / "go").touch()
        end = await runner.end(attempt)
    assert end.log_bytes == len(b"first line\n")


async def test_the_output_is_written_when_the_end_is_told(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        for attempt in [runner.call("both", concurrency=2) for _ in range(20)]:
            end = await runner.do(attempt)
            assert len(runner.log(attempt)) == end.log_bytes > 0


class BrokenLogs(DirectoryLogs):
    """A log store whose disk is full for a while."""

    refusals = 1

    def append(self, key: LogKey, offset: int, data: bytes) -> None:
        if self.refusals > 0:
            self.refusals -= 1
            raise OSError(28, "No space left on device")
        super().append(key, offset, data)


async def test_a_log_store_that_refuses_output_costs_only_that_output(tmp_path: Path) -> None:
    async with rig(tmp_path) as runner:
        runner.runner._log_writer._logs = broken = BrokenLogs(tmp_path / "logs")
        go = tmp_path / "go"
        attempt = runner.shell("sh", "-c", f"echo first; until [ -e {go} ]; do sleep 0.02; done; echo after")
        runner.begin(attempt)
        async with asyncio.timeout(PATIENCE_S):
            while broken.refusals:
                await asyncio.sleep(0.01)
        go.touch()
        end = await runner.end(attempt)
        log = runner.log(attempt)
        assert end.outcome is Outcome.SUCCEEDED
        assert log == b"\n[rota: 6 bytes are missing here: they could not be kept]\nafter\n"
        assert end.log_bytes == len(log)
        broken.refusals = 10**9
        lost = await runner.do(runner.shell("echo", "x"))
        assert (lost.outcome, lost.log_bytes) == (Outcome.SUCCEEDED, 2)


class SlowLogs(DirectoryLogs):
    """A log store that hangs until it is told to go on."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.go = threading.Event()

    def append(self, key: LogKey, offset: int, data: bytes) -> None:
        self.go.wait(PATIENCE_S)
        super().append(key, offset, data)


async def test_a_log_store_that_hangs_delays_no_end_for_long_and_bounds_memory(tmp_path: Path) -> None:
    async with rig(tmp_path) as runner:
        runner.runner._log_writer._logs = slow = SlowLogs(tmp_path / "logs")
        with pytest.MonkeyPatch.context() as patch:  # for the others there is time to write all of it
            patch.setattr(attempts, "LOG_WAIT_S", 2.0)
            end = await runner.do(runner.shell("echo", "x"))
        assert (end.outcome, end.log_bytes) == (Outcome.SUCCEEDED, 0)
        floods = [runner.shell("head", "-c", str(16 * MIB), "/dev/zero") for _ in range(4)]
        runner.begin(*floods)
        async with asyncio.timeout(PATIENCE_S):
            while not runner.runner._log_writer.is_full:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert runner.runner._log_writer._backlog < 34 * MIB
        slow.go.set()
        ends = [await runner.end(flood) for flood in floods]
        assert {end.log_bytes for end in ends} == {16 * MIB}
