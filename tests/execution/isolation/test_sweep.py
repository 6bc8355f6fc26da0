"""What an earlier agent left on this host is cleared, nothing else is touched, and doubt is said."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from rota.execution.isolation import cgroup, clearing
from rota.execution.isolation.promises import BoundaryKind, promise
from rota.execution.isolation.records import AgentRecord, Process, Records, TreeRecord, read_agent
from rota.execution.isolation.sweeping import sweep
from tests.execution.isolation.rig import KINDS, PATIENCE_S, Rig, wait_until


async def test_trees_of_a_living_agent_are_left_alone(rig: Rig, kind: BoundaryKind) -> None:
    rig.add("plain")
    rig.start(kind)
    swept = await sweep(rig.state_dir)
    assert (swept.living, swept.formers) == (1, ())
    assert rig.alive


async def test_a_killed_agent_is_told_with_its_node_and_whether_nothing_is_left(
    rig: Rig, kind: BoundaryKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clearing, "_OWN_END_S", PATIENCE_S)  # a guardian that is killed too has not seen its tree end
    rig.add("plain")
    rig.add("stubborn")
    rig.start(kind)
    pid = rig.pid
    rig.kill()
    swept = await sweep(rig.state_dir)
    assert rig.alive == {}
    (former,) = swept.formers
    assert (former.agent.node, former.agent.agent.pid) == ("n1", pid)
    assert former.empty is (kind is not BoundaryKind.GROUP)
    assert swept.is_empty(pid, former.agent.agent.ticks, former.agent.boot_id) is former.empty
    assert not swept.is_empty(pid + 1, former.agent.agent.ticks, former.agent.boot_id)
    assert not swept.is_empty(pid, former.agent.agent.ticks + 1, former.agent.boot_id)
    assert list(rig.state_dir.iterdir()) == []


async def test_an_agent_that_had_no_trees_is_told_too(rig: Rig, kind: BoundaryKind) -> None:
    rig.start(kind)
    rig.kill()
    swept = await sweep(rig.state_dir)
    assert [(former.trees, former.empty) for former in swept.formers] == [(0, kind is not BoundaryKind.GROUP)]


async def test_a_second_sweep_finds_nothing(rig: Rig) -> None:
    rig.add("plain")
    rig.start(KINDS[0])
    rig.kill()
    await sweep(rig.state_dir)
    assert (await sweep(rig.state_dir)).formers == ()


async def test_a_number_that_was_used_again_is_nobody(
    folder: Path, bystander: subprocess.Popen[bytes], kind: BoundaryKind
) -> None:
    """The record names the pid of the bystander, with another start."""
    records = forged(folder / "state", pid=bystander.pid, kind=kind)
    group = f"{cgroup.unified()}/rota.nobody" if kind is BoundaryKind.CGROUP else None
    nobody = Process(pid=bystander.pid, ticks=1)
    records.write(TreeRecord(label="x", name="n.1", kind=kind, supervisor=nobody, group=group))
    swept = await sweep(folder / "state")
    assert bystander.poll() is None
    assert [former.empty for former in swept.formers] == [promise(kind).full]


async def test_an_agent_of_an_earlier_boot_left_nothing(folder: Path, bystander: subprocess.Popen[bytes]) -> None:
    records = forged(folder / "state", pid=bystander.pid, boot_id="another")
    records.write(TreeRecord(label="x", name="n.1", kind=KINDS[0], supervisor=records.agent.agent))
    swept = await sweep(folder / "state")
    assert bystander.poll() is None
    assert [former.empty for former in swept.formers] == [True]
    assert read_agent(records.folder) is None


async def test_an_agent_of_another_pid_namespace_is_neither_touched_nor_called_empty(folder: Path) -> None:
    records = forged(folder / "state", pid=1, pid_namespace="pid:[1]")
    swept = await sweep(folder / "state")
    (former,) = swept.formers
    assert not former.empty
    assert "cannot be seen from" in former.why
    assert read_agent(records.folder) is not None


async def test_a_record_that_was_cut_short_is_of_a_tree_that_never_started(folder: Path) -> None:
    records = forged(folder / "state", pid=2**22 - 1)
    records.path("n.1").write_text('{"label": "x", "na')
    swept = await sweep(folder / "state")
    assert [former.empty for former in swept.formers] == [True]
    assert read_agent(records.folder) is None


async def test_what_an_agent_was_just_writing_when_it_was_killed_keeps_no_other_from_starting(rig: Rig) -> None:
    rig.start(KINDS[0])
    rig.kill()
    (own,) = rig.state_dir.iterdir()
    (own / f".probe-{rig.pid}").write_text("")
    (own / ".tree-n.1").write_text('{"label": "x", "na')
    swept = await sweep(rig.state_dir)
    assert [former.agent.agent.pid for former in swept.formers] == [rig.pid]
    assert list(rig.state_dir.iterdir()) == []


async def test_an_agent_that_died_while_it_began_leaves_nothing_and_one_that_begins_is_left_alone(folder: Path) -> None:
    state = folder / "state"
    for name in (".agent-dead", ".agent-begins"):
        (state / name).mkdir(mode=0o700, parents=True)
        (state / name / "agent.json").write_text("")
    state.chmod(0o700)
    os.utime(state / ".agent-dead", (0, 0))
    await sweep(state)
    assert [path.name for path in state.iterdir()] == [".agent-begins"]


async def test_a_folder_that_does_not_say_whose_it_is_is_reported(folder: Path) -> None:
    records = forged(folder / "state", pid=2**22 - 1)
    records.path("n.1").write_text("{}")
    (records.folder / "agent.json").write_text("")
    assert (await sweep(folder / "state")).unreadable == (str(records.folder),)


async def test_a_tree_is_written_down_before_its_program_starts(rig: Rig, kind: BoundaryKind) -> None:
    rig.add("plain")
    rig.start(kind)
    (folder,) = rig.state_dir.iterdir()
    agent = read_agent(folder)
    assert agent is not None
    assert agent.agent.is_alive
    (path,) = folder.glob("tree-*")
    written = json.loads(path.read_text())
    assert written["supervisor"]["pid"] in rig.facts["supervisors"].values()
    assert written["kind"] == kind


async def test_nothing_is_swept_where_nothing_was_written(folder: Path) -> None:
    swept = await sweep(folder / "nothing")
    assert (swept.formers, swept.living, swept.unreadable) == ((), 0, ())


async def test_two_sweeps_at_once_do_not_disturb_each_other(rig: Rig, kind: BoundaryKind) -> None:
    for _ in range(5):
        rig.add("plain")
    rig.start(kind)
    rig.kill()
    await asyncio.gather(sweep(rig.state_dir), sweep(rig.state_dir))
    wait_until(lambda: not rig.alive, "all are gone")
    assert list(rig.state_dir.iterdir()) == []


def forged(folder: Path, *, pid: int, kind: BoundaryKind = KINDS[0], **changes: str) -> Records:
    """The folder of an agent that never was: its pid has another start than it says."""
    records = Records.begin(folder, "n1", kind)
    agent: AgentRecord = msgspec.structs.replace(records.agent, agent=Process(pid=pid, ticks=1), **changes)
    (records.folder / "agent.json").write_bytes(msgspec.json.encode(agent))
    assert os.getpid() != pid
    return Records(records.folder, agent)
