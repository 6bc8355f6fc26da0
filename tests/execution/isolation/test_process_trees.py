"""What a tree gets, how its end is told, and what an agent that goes on living sees of it."""

import asyncio
import gc
import json
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rota.errors import BoundaryFailed, CannotStart
from rota.execution.isolation.availability import strongest
from rota.execution.isolation.process_tree import TreeEnd
from rota.execution.isolation.process_trees import ProcessTrees
from rota.execution.isolation.promises import BoundaryKind
from rota.model.work import Bounds
from tests.execution.isolation.rig import IS_ROOT, KINDS, wait_until
from tests.execution.isolation.trees import all_output, first_line, python, shell, spec

needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can run programs as somebody else")


@pytest.fixture
async def any_process_trees(folder: Path) -> AsyncIterator[ProcessTrees]:
    process_trees = await ProcessTrees.open(None, state_dir=folder / "state", node="n1")
    process_trees.renew(10**9)
    yield process_trees
    await process_trees.close()


async def test_the_strongest_boundary_is_chosen(any_process_trees: ProcessTrees) -> None:
    assert any_process_trees.kind is strongest() is KINDS[0]


@pytest.mark.parametrize(
    ("script", "code", "ended_by"), [("exit 0", 0, None), ("exit 7", 7, None), ("kill -9 $$", None, 9)]
)
async def test_the_end_of_the_main_process_is_told(
    process_trees: ProcessTrees, script: str, code: int | None, ended_by: int | None
) -> None:
    tree = await process_trees.start(shell(script))
    assert await tree.ended() == TreeEnd(code=code, signal=ended_by)
    os.close(tree.output)


async def test_both_outputs_come_through_one_pipe_and_the_input_is_empty(process_trees: ProcessTrees) -> None:
    tree = await process_trees.start(shell("cat; echo out; echo err >&2"))
    assert await all_output(tree) == "out\nerr\n"


async def test_the_environment_is_what_was_given_and_the_name_of_the_tree(process_trees: ProcessTrees) -> None:
    tree = await process_trees.start(spec("/usr/bin/env", "-0", env={"PARAM": "a b\n$(id) ü", "EMPTY": ""}))
    entries = (await all_output(tree)).split("\0")
    assert sorted(entries) == sorted(["", "PARAM=a b\n$(id) ü", "EMPTY=", f"ROTA_TREE={tree.name}"])


async def test_arguments_arrive_as_they_are(process_trees: ProcessTrees) -> None:
    odd = ["", " ", "$(id)", "`id`", "a\nb", "*", "-rf", "~", "\udcff", "x" * 100_000]
    program = python("import sys, json; print(json.dumps(sys.argv[1:]))")
    tree = await process_trees.start(spec(*program.argv, *odd))
    assert json.loads(await all_output(tree)) == odd


OPEN = """
import os
for number in range(1000):
    try:
        print(os.readlink(f"/proc/self/fd/{number}").partition(":")[0])
    except OSError:
        pass
"""


@pytest.mark.parametrize("channel", [False, True])
async def test_a_program_gets_no_descriptor_but_its_own(process_trees: ProcessTrees, *, channel: bool) -> None:
    secret = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(secret, True)
    tree = await process_trees.start(python(OPEN, channel=channel))
    os.close(secret)
    if tree.channel:
        tree.channel.close()
    assert (await all_output(tree)).split() == ["/dev/null", "pipe", "pipe", *(["socket"] if channel else [])]


async def test_a_channel_connects_program_and_agent(process_trees: ProcessTrees) -> None:
    script = "import os, socket; s = socket.socket(fileno=int(os.environ['ROTA_CHANNEL'])); s.sendall(s.recv(9)[::-1])"
    tree = await process_trees.start(python(script, channel=True))
    assert tree.channel is not None
    tree.channel.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(tree.channel, b"abc")
    assert await loop.sock_recv(tree.channel, 9) == b"cba"
    assert await loop.sock_recv(tree.channel, 9) == b""
    tree.channel.close()
    os.close(tree.output)


OF_THE_C_LIBRARY = 0x1_8000_0000
"""Signals 32 and 33: `make` leaves them ignored, and only the C library can change them."""


async def test_signals_are_as_a_new_program_expects_them(process_trees: ProcessTrees) -> None:
    tree = await process_trees.start(spec("/usr/bin/env", "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"))
    words = (await all_output(tree)).split()
    assert words[::2] == ["SigBlk:", "SigIgn:"]
    assert [int(word, 16) & ~OF_THE_C_LIBRARY for word in words[1::2]] == [0, 0]


async def test_it_leads_a_session_of_its_own_and_leaves_no_core(process_trees: ProcessTrees) -> None:
    tree = await process_trees.start(
        python("import os, resource as r; print(os.getsid(0) == os.getpid(), r.getrlimit(r.RLIMIT_CORE))")
    )
    assert await all_output(tree) == "True (0, 0)\n"


async def test_it_runs_in_its_directory(process_trees: ProcessTrees, folder: Path) -> None:
    tree = await process_trees.start(shell("pwd", bounds=Bounds(directory=str(folder))))
    assert await all_output(tree) == f"{folder}\n"


@needs_root
async def test_it_runs_as_another_user_with_that_users_groups_and_no_way_back(process_trees: ProcessTrees) -> None:
    tree = await process_trees.start(
        shell("id -u; id -g; id -G; grep NoNewPrivs /proc/self/status", bounds=Bounds(user="nobody"))
    )
    assert (await all_output(tree)).split() == ["65534", "65534", "65534", "NoNewPrivs:", "1"]


async def test_its_number_is_the_one_that_the_agent_sees(process_trees: ProcessTrees) -> None:
    tree = await process_trees.start(spec("sleep", "1000"))
    process = psutil.Process(tree.pid)
    wait_until(lambda: process.cmdline() == ["sleep", "1000"], "it is that program", process.cmdline)
    os.close(tree.output)


@pytest.mark.parametrize(
    ("argv", "bounds", "reason"),
    [
        (("no-such-program",), Bounds(), "cannot execute 'no-such-program': No such file or directory"),
        (("/etc/passwd",), Bounds(), "cannot execute '/etc/passwd': Permission denied"),
        (("/tmp",), Bounds(), "cannot execute '/tmp': Permission denied"),
        (("true",), Bounds(directory="/nowhere"), "cannot change to directory '/nowhere': No such file or directory"),
        (("true",), Bounds(user="no-such-user"), "there is no user 'no-such-user' on this host"),
        ((), Bounds(), "a command line has at least a program, and no NUL anywhere"),
        (("true", "a\0b"), Bounds(), "a command line has at least a program, and no NUL anywhere"),
    ],
)
async def test_what_cannot_start_says_why_and_leaves_nothing(
    process_trees: ProcessTrees, argv: tuple[str, ...], bounds: Bounds, reason: str
) -> None:
    with pytest.raises(CannotStart) as caught:
        await process_trees.start(spec(*argv, bounds=bounds))
    assert reason in str(caught.value)
    assert not process_trees.live
    assert [path.name for path in process_trees.folder.iterdir()] == ["agent.json"]


@needs_root
async def test_a_directory_is_entered_as_the_user_of_the_program(process_trees: ProcessTrees, folder: Path) -> None:
    private = folder / "private"
    private.mkdir(mode=0o700)
    with pytest.raises(CannotStart, match="cannot change to directory"):
        await process_trees.start(shell("true", bounds=Bounds(user="nobody", directory=str(private))))


async def test_a_signal_reaches_the_main_process_and_its_group(process_trees: ProcessTrees) -> None:
    tree = await process_trees.start(
        shell("trap 'echo main; exit 3' TERM; (trap 'echo child' TERM; sleep 1000) & echo ready; wait")
    )
    assert await first_line(tree) == "ready"
    tree.signal(signal.SIGTERM)
    assert (await tree.ended()).code == 3
    assert "main" in await all_output(tree)


async def test_kill_is_told_only_when_nobody_is_left(process_trees: ProcessTrees) -> None:
    tree = await process_trees.start(shell("trap '' TERM; (sleep 1000 & echo ready; exec sleep 1000) & wait"))
    await first_line(tree)
    here = [psutil.Process(tree.pid), *psutil.Process(tree.pid).children(recursive=True)]
    assert len(here) >= 3
    tree.kill()
    end = await tree.ended()
    assert not list(filter(_lives, here))
    assert (end.signal, end.code, end.supervisor_killed, end.killed_by_switch) == (signal.SIGKILL, None, False, False)
    os.close(tree.output)


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


async def test_processes_that_outlive_the_main_one_are_killed_and_counted(process_trees: ProcessTrees) -> None:
    escape = "os.setsid()" if process_trees.kind is not BoundaryKind.GROUP else "None"
    script = f"""
import os, time
for _ in range(3):
    ready, done = os.pipe()
    if os.fork() == 0:
        {escape}
        os.write(done, b"x")
        time.sleep(1000)
    os.read(ready, 1)
raise SystemExit(5)
"""
    tree = await process_trees.start(python(script))
    assert await tree.ended() == TreeEnd(code=5, leftovers=3)
    assert await all_output(tree) == ""


async def test_many_trees_at_once_are_kept_apart(process_trees: ProcessTrees) -> None:
    async def one(number: int) -> tuple[int | None, str]:
        tree = await process_trees.start(shell(f"echo {number}; exit {number}"))
        return (await tree.ended()).code, (await all_output(tree)).strip()

    assert await asyncio.gather(*map(one, range(40))) == [(number, str(number)) for number in range(40)]
    assert not process_trees.live


async def test_a_stopped_supervisor_does_not_keep_a_tree_from_being_killed(process_trees: ProcessTrees) -> None:
    tree = await process_trees.start(spec("sleep", "1000"))
    os.kill(tree.record().supervisor.pid, signal.SIGSTOP)
    tree.kill()
    assert (await tree.ended()).signal == signal.SIGKILL
    os.close(tree.output)


async def test_the_death_of_the_zygote_is_survived(process_trees: ProcessTrees) -> None:
    before = await process_trees.start(shell("echo ready; exec sleep 1000"))
    await first_line(before)
    zygote = process_trees.zygote_pid
    assert zygote is not None
    os.kill(zygote, signal.SIGKILL)
    if process_trees.kind is BoundaryKind.NAMESPACE:
        assert await before.ended() == TreeEnd(supervisor_killed=True)
    after = await process_trees.start(shell("exit 4"))
    assert (await after.ended()).code == 4
    assert process_trees.zygote_pid != zygote
    if process_trees.kind is not BoundaryKind.NAMESPACE:
        assert before in process_trees.live, "its own supervisor goes on"
        before.kill()
        assert (await before.ended()).signal == signal.SIGKILL
    os.close(before.output)
    os.close(after.output)


async def test_a_start_that_is_given_up_leaves_nothing(process_trees: ProcessTrees) -> None:
    starts = [asyncio.create_task(process_trees.start(spec("sleep", "1000"))) for _ in range(20)]
    for delay, start in enumerate(starts):
        for _ in range(delay):
            await asyncio.sleep(0)
        start.cancel()
    for start in starts:
        if not start.cancelled() and await _outcome(start):
            tree = start.result()
            tree.kill()
            os.close(tree.output)
    while process_trees.live:
        await asyncio.gather(*(tree.ended() for tree in process_trees.live))
    assert [path.name for path in process_trees.folder.iterdir()] == ["agent.json"]


async def _outcome(start: asyncio.Task[object]) -> bool:
    try:
        await start
    except asyncio.CancelledError:
        return False
    return True


async def test_closing_kills_what_is_left_and_ends_the_zygote(kind: BoundaryKind, folder: Path) -> None:
    process_trees = await ProcessTrees.open(kind, state_dir=folder / "state", node="n1")
    process_trees.renew(10**9)
    trees = [await process_trees.start(shell("trap '' TERM; echo; sleep 1000; sleep 1000")) for _ in range(3)]
    for tree in trees:
        await first_line(tree)
    pids = [process_trees.zygote_pid, *(tree.pid for tree in trees)]
    await process_trees.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert [(await tree.ended()).signal for tree in trees] == [signal.SIGKILL] * 3
    assert list((folder / "state").iterdir()) == []
    for tree in trees:
        os.close(tree.output)
    with pytest.raises(BoundaryFailed, match="this node is stopping"):
        await process_trees.start(shell("true"))


async def test_an_agent_leaks_no_descriptor(process_trees: ProcessTrees) -> None:
    async def one() -> None:
        tree = await process_trees.start(shell("exit 0", channel=True))
        await tree.ended()
        os.close(tree.output)
        assert tree.channel is not None
        tree.channel.close()

    await one()
    gc.collect()
    before = _descriptors()
    for _ in range(5):
        await one()
        with pytest.raises(CannotStart):
            await process_trees.start(spec("no-such-program", channel=True))
    assert _descriptors() == before


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_zygote_is_not_started_from_a_passing_thread(folder: Path) -> None:
    """It would die with that thread."""
    caught: list[BaseException] = []

    def other_thread() -> None:
        try:
            asyncio.run(ProcessTrees.open(KINDS[0], state_dir=folder / "state", node="n1"))
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=other_thread)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert "main thread" in str(caught[0])
