"""What a node does so that its tasks, and other users of its host, get no more than is theirs."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.rig import ROTA, Home
from tests.execution.isolation.rig import IS_ROOT, NOBODY, PYTHON, ROOT, SITE, wait_until


def test_a_node_refuses_a_state_folder_that_others_could_have_written(home: Home) -> None:
    state = home.path / "state"
    state.mkdir()
    state.chmod(0o777)
    ended = home.rota("node", "start", "--seconds", "20", env={"ROTA_EXECUTOR_STATE_PATH": str(state)})
    assert ended.returncode == 2
    assert "node.joined" not in ended.stdout + ended.stderr
    assert f"executor.state_path: {state} is open to others (mode 777)" in ended.stderr
    assert f"chmod 700 {state}" in ended.stderr


PATIENCE_S = 90.0  # from a new process to the first line of a task
SECRET = "swordfish4"
SPY = """
import ctypes, os
if os.getppid() == 1:  # in a PID namespace; elsewhere it is the /proc of the host
    ctypes.CDLL(None).umount2(b'/proc', 2)
found = []
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        with open(f'/proc/{pid}/environ', 'rb') as file:
            found += [pid] if b'sword' b'fish4' in file.read() else []
    except OSError:
        pass
print('mine', b'sword' b'fish4' in repr(os.environ).encode(), 'others', found)
"""


@pytest.mark.parametrize("boundary", ["namespace", "guardian"])
@pytest.mark.parametrize("user", [None, NOBODY] if IS_ROOT else [None])
def test_no_task_finds_a_password_of_its_node_in_any_environment(home: Home, boundary: str, user: int | None) -> None:
    """Also when it takes away the /proc that hides the others."""
    home.write("jobs.yaml", f"jobs: {{spy: {{every_s: 1, shell: [{PYTHON}, -I, -S, -c, {json.dumps(SPY)}]}}}}")
    state, secret = str(home.path / "state"), {"ROTA_ALARM_SMTP_PASSWORD": SECRET, "ROTA_EXECUTOR_BOUNDARY": boundary}
    env = {**home.env, **secret, "ROTA_EXECUTOR_STATE_PATH": state, "PYTHONPATH": f"{ROOT / 'src'}:{SITE}"}
    start = (PYTHON, "-S", "-c", "from rota.cli.main import main; main()", "up", "jobs.yaml")
    if user is not None:
        os.chown(home.path, user, user)
    for each in (home.path, *list(home.path.parents)[:-1]):
        each.chmod(each.stat().st_mode | 0o011)
    with subprocess.Popen(start, cwd=home.path, env=env, user=user, group=user, stderr=subprocess.PIPE) as up:
        try:
            wait_until(lambda: _logs(home), "the spy has run", up.poll, PATIENCE_S)
            assert not _may_read(up.pid, user), "it is hidden from its own user too"
            if IS_ROOT:
                assert SECRET not in Path(f"/proc/{up.pid}/environ").read_text(), "it is overwritten"
        finally:
            up.terminate()
    assert set(_logs(home)) == {"mine False others []\n"}


def _logs(home: Home) -> list[str]:
    return [text for path in (home.path / "rota-logs").rglob("*.log") if (text := path.read_text())]


def _may_read(pid: int, user: int | None) -> bool:
    """Whether a process of the same user, without capabilities, reads the environment of that one."""
    user = NOBODY if IS_ROOT and user is None else user
    command = ["cat", f"/proc/{pid}/environ"]
    return subprocess.run(command, user=user, group=user, capture_output=True, check=False).returncode == 0


def test_a_root_node_says_whom_its_tasks_run_as(home: Home) -> None:
    ended = home.rota("up", str(home.write("jobs.yaml", "jobs: {}")), "--seconds", "1")
    assert (IS_ROOT and "tasks that name no user run as root, without capabilities" in ended.stdout + ended.stderr) or (
        not IS_ROOT and "as root" not in ended.stdout + ended.stderr
    )


def test_an_executor_user_that_is_not_there_is_refused_at_the_start(home: Home) -> None:
    file = home.write("jobs.yaml", "jobs: {}")
    ended = home.rota("up", str(file), "--seconds", "20", env={"ROTA_EXECUTOR_USER": "nobody-of-that-name"})
    assert ended.returncode == 2
    assert "executor.user: there is no user 'nobody-of-that-name' on this host" in ended.stderr


def test_a_node_stops_when_told_to_also_if_nobody_reads_what_it_says(home: Home) -> None:
    home.write("jobs.yaml", "jobs: {long: {every_s: 1, overlap: forbid, shell: [sh, -c, 'echo here; sleep 5']}}")
    env = {**home.env, "ROTA_EXECUTOR_STATE_PATH": str(home.path / "state")}
    with subprocess.Popen([ROTA, "up", "jobs.yaml"], cwd=home.path, env=env, stderr=subprocess.PIPE) as up:
        wait_until(lambda: _logs(home), "something runs", up.poll, PATIENCE_S)
        assert up.stderr is not None
        up.stderr.close()
        up.terminate()
        try:
            up.wait(60)
        finally:
            up.kill()
