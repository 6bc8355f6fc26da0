"""What an agent wrote down is believed only from a folder that nobody else can write: a sweep kills by it."""

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from rota.errors import InvalidInput
from rota.execution.isolation import procfs
from rota.execution.isolation.processes import boot_id, pid_namespace
from rota.execution.isolation.promises import BoundaryKind
from rota.execution.isolation.records import AgentRecord, Process, Records, TreeRecord, read
from rota.execution.isolation.sweeping import sweep, sweep_now
from tests.execution.isolation.rig import IS_ROOT, KINDS, NOBODY

NO_PROCESS = 2**22 - 1


@pytest.fixture
def state(folder: Path) -> Path:
    """A state folder as an agent makes it."""
    path = folder / "state"
    path.mkdir(mode=0o700)
    return path


def forge(state: Path, **tree: object) -> Path:
    """Records of an agent that is gone, with one tree."""
    agent = AgentRecord(
        node="n1",
        token="forged",
        agent=Process(pid=NO_PROCESS, ticks=1),
        boot_id=boot_id(),
        pid_namespace=pid_namespace(),
        kind=BoundaryKind.NAMESPACE,
    )
    fields = {"kind": BoundaryKind.NAMESPACE, "supervisor": agent.agent, **tree}
    own = state / "agent-forged"
    own.mkdir(mode=0o700)
    (own / "agent.json").write_bytes(msgspec.json.encode(agent))
    (own / "tree-forged.1").write_bytes(msgspec.json.encode(TreeRecord(label="x", name="forged.1", **fields)))  # type: ignore[arg-type]
    return own


def process_of(pid: int) -> Process:
    seen = procfs.find(pid)
    assert seen is not None
    return Process(pid=pid, ticks=seen.ticks)


async def test_records_in_an_own_private_folder_are_believed(state: Path, bystander: subprocess.Popen[bytes]) -> None:
    forge(state, supervisor=process_of(bystander.pid))
    await sweep(state)
    bystander.wait(20)


def test_a_record_of_a_release_that_wrote_more_is_read(state: Path) -> None:
    path = forge(state) / "tree-forged.1"
    known = read(path, TreeRecord)
    path.write_bytes(msgspec.json.encode({**msgspec.json.decode(path.read_bytes()), "limit_groups": ["/some/group"]}))
    assert known is not None
    assert read(path, TreeRecord) == known


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o755])
def test_a_folder_that_others_may_enter_is_refused(state: Path, bystander: subprocess.Popen[bytes], mode: int) -> None:
    forge(state, supervisor=process_of(bystander.pid))
    state.chmod(mode)
    with pytest.raises(InvalidInput, match=rf"^executor.state_path: {state} .*chmod 700 {state}"):
        sweep_now(state)
    assert bystander.poll() is None


async def test_a_link_in_place_of_the_folder_is_refused(
    folder: Path, state: Path, bystander: subprocess.Popen[bytes]
) -> None:
    forge(state, supervisor=process_of(bystander.pid))
    (folder / "link").symlink_to(state)
    with pytest.raises(InvalidInput, match="is a symbolic link"):
        await sweep(folder / "link")
    assert bystander.poll() is None


async def test_a_folder_of_another_user_is_refused(state: Path, bystander: subprocess.Popen[bytes]) -> None:
    forge(state, supervisor=process_of(bystander.pid))
    if IS_ROOT:
        os.chown(state, NOBODY, NOBODY)
    with pytest.raises(InvalidInput, match="belongs to"):
        await sweep(state if IS_ROOT else Path("/usr"))
    assert bystander.poll() is None


async def test_a_file_in_place_of_the_folder_is_refused(folder: Path) -> None:
    (folder / "state").write_text("")
    with pytest.raises(InvalidInput, match="is not a folder"):
        await sweep(folder / "state")


def test_no_agent_begins_where_others_may_write(state: Path) -> None:
    state.chmod(0o777)
    with pytest.raises(InvalidInput, match=r"^executor.state_path: "):
        Records.begin(state, "n1", KINDS[0])
    assert list(state.iterdir()) == []


async def test_a_folder_that_is_not_there_has_nothing_to_sweep(folder: Path) -> None:
    assert (await sweep(folder / "never")).formers == ()
    assert not (folder / "never").exists()


async def test_a_group_that_is_not_below_our_own_is_left_alone(
    folder: Path, state: Path, bystander: subprocess.Popen[bytes]
) -> None:
    """A folder that looks like a group, with the number of a process in it."""
    group = folder / "rota.forged.1"
    group.mkdir()
    (group / "cgroup.procs").write_text(str(bystander.pid))
    forge(state, kind=BoundaryKind.CGROUP, group=str(group))
    (former,) = (await sweep(state)).formers
    assert bystander.poll() is None
    assert not former.empty
    assert f"{group} is not below" in former.why


@pytest.mark.skipif(not IS_ROOT, reason="only root can give a file to somebody else")
async def test_a_record_that_another_user_wrote_is_not_believed(
    state: Path, bystander: subprocess.Popen[bytes]
) -> None:
    own = forge(state, supervisor=process_of(bystander.pid))
    os.chown(own / "tree-forged.1", NOBODY, NOBODY)
    await sweep(state)
    assert bystander.poll() is None
