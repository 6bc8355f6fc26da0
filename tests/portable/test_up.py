"""`rota up` without Linux: what a laptop with macOS can do."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from rota.execution.isolation.promises import PROMISES
from tests.e2e.rig import Home, Process
from tests.execution.isolation.rig import wait_until
from tests.portable.ground import Ground

MAIN = "from rota.cli.main import main; main()"
PROMISE = PROMISES[-1]

APP = """
import os
import pathlib
import subprocess
import sys
import time

import rota

app = rota.App()
here = pathlib.Path(__file__).parent


@app.task()
def add(a: int = 1, b: int = 2):
    print("adds", sys.platform)
    return a + b


@app.task()
async def add_async(a: int = 1, b: int = 2):
    return a + b


@app.task(retries={"max": 2, "backoff": 0.1})
def second_time():
    if rota.current().attempt == 1:
        raise ValueError("not yet")
    return "now"


@app.task(timeout_s=5, grace_s=20)
def too_slow():
    try:
        time.sleep(100)
    finally:
        (here / "cleaned-up").touch()


@app.task()
def leaves_a_process():
    subprocess.Popen(["sleep", "SLEEP"])


@app.task()
def works_with_others():
    child = subprocess.Popen(["sleep", "SLEEP"])
    (here / "python-pids").write_text(f"{os.getpid()} {child.pid}")
    child.wait()
"""

JOBS = """
jobs:
  hello: {{shell: [sh, -c, "echo hello; echo 7 > $ROTA_RESULT"]}}
  fails: {{shell: [sh, -c, "exit 3"]}}
  missing: {{shell: [/no/such/program]}}
  forks: {{shell: [sh, -c, "sleep SLEEP & echo forked"]}}
  slow: {{shell: [sh, -c, "sleep SLEEP"], timeout_s: 1, grace_s: 0.2}}
  long: {{shell: [sh, -c, "sleep SLEEP & echo $$ $! > {here}/shell-pids; wait"]}}
  brief: {{shell: [sh, -c, "echo begun; while [ ! -e {here}/go ]; do sleep 0.05; done"]}}
  asks: {{http: {{url: "{url}"}}}}
"""


class Plain(Home):
    """A folder in which rota has no Linux."""

    def __init__(self, path: Path, ground: Ground) -> None:
        super().__init__(path)
        self._ground = ground
        self.env |= {"HOME": str(path), "ROTA_EXECUTOR_STATE_PATH": str(path / "state")}

    def start(self, *arguments: str) -> Process:
        return Process(self._ground.command("-c", MAIN, *arguments), self.path, self.env)

    def rota(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        command = self._ground.command("-c", MAIN, *arguments)
        return subprocess.run(
            command, cwd=self.path, env={**self.env, **(env or {})}, capture_output=True, text=True, timeout=60
        )

    def trigger(self, job: str) -> int:
        run_id: int = self.json("job", "trigger", job)["id"]
        return run_id

    def run_of(self, run_id: int) -> Any:
        return self.json("run", "show", str(run_id))

    def ended(self, run_id: int) -> Any:
        wait_until(lambda: self.run_of(run_id)["state"] in ENDS, f"run {run_id} ends", lambda: self.run_of(run_id))
        return self.run_of(run_id)

    def sleepers(self) -> list[int]:
        """The processes that tasks have started, and that are still there."""
        return [it.pid for it in psutil.process_iter() if sleeping(it)]

    def pids(self, name: str) -> list[int]:
        """What a task has written down of its processes."""
        file = self.path / "work" / name
        wait_until(lambda: file.exists() and len(file.read_text().split()) == 2, f"{name} is written")
        return [int(word) for word in file.read_text().split()]


SLEEP = f"1{os.getpid()}.5"
"""For how long processes of these tests sleep: so they are told from others."""
ENDS = {"succeeded", "failed", "cancelled", "timed_out", "skipped"}


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'"pong"')

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def home(tmp_path: Path, ground: Ground, url: str) -> Plain:
    (tmp_path / "home").mkdir()
    home = Plain(tmp_path / "home", ground)
    home.env["ROTA_EXECUTOR_HTTP_HOSTS"] = url.removeprefix("http://").rstrip("/")
    home.write("work/app.py", APP.replace("SLEEP", SLEEP))
    home.write("work/jobs.yaml", JOBS.format(here=home.path / "work", url=url).replace("SLEEP", SLEEP))
    return home


def sleeping(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.cmdline()[:2] == ["sleep", SLEEP] and process.status() != psutil.STATUS_ZOMBIE
    return False


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def alive(pids: list[int]) -> list[int]:
    return list(filter(is_alive, pids))


def test_up_runs_and_retries_tasks_of_all_kinds_without_linux(home: Plain) -> None:
    jobs = ("add", "add_async", "second_time", "hello", "asks", "forks", "leaves_a_process")
    with home.start("up", "work") as up:
        up.says("node.joined")
        runs = {job: home.trigger(job) for job in jobs}
        ends = {job: home.ended(run_id) for job, run_id in runs.items()}
        assert {job: end["state"] for job, end in ends.items()} == dict.fromkeys(jobs, "succeeded")
        results = {job: end["items"][0]["result"] for job, end in ends.items()}
        assert (results["add"], results["add_async"], results["hello"]) == (3, 3, 7)
        assert results["asks"] == {"status": 200, "body": '"pong"', "truncated": False}
        assert [it["outcome"] for it in ends["second_time"]["attempts"]] == ["failed", "succeeded"]
        assert home.ok("logs", str(runs["add"])) == "adds darwin\n"
        outlived = "forked\n[rota: 1 processes outlived the program; they were killed]\n"
        assert home.ok("logs", str(runs["forks"])) == outlived
        assert "left processes behind" in home.ok("logs", str(runs["leaves_a_process"]))
        wait_until(lambda: not home.sleepers(), "what tasks have left behind is gone")
        assert "Traceback" not in up.log


def test_up_fails_times_out_and_cancels_without_linux(home: Plain) -> None:
    with home.start("up", "work") as up:
        up.says("node.joined")
        failing = {job: home.trigger(job) for job in ("fails", "missing", "slow", "too_slow")}
        cancelled = home.trigger("long")
        running = home.pids("shell-pids")
        assert alive(running) == running
        home.json("run", "cancel", str(cancelled))
        assert home.ended(cancelled)["state"] == "cancelled"
        assert alive(running) == []
        ends = {job: home.ended(run_id) for job, run_id in failing.items()}
        attempts = {job: end["attempts"][0] for job, end in ends.items()}
        assert {job: end["state"] for job, end in ends.items()} == dict.fromkeys(failing, "failed")
        assert {job: it["outcome"] for job, it in attempts.items()} == {
            "fails": "failed",
            "missing": "failed",
            "slow": "timed_out",
            "too_slow": "timed_out",
        }
        assert attempts["fails"]["code"] == 3
        assert "cannot execute '/no/such/program': No such file or directory" in attempts["missing"]["message"]
        assert (home.path / "work" / "cleaned-up").exists()
        assert home.sleepers() == []
        assert "Traceback" not in up.log


def test_up_says_what_it_promises_without_linux_and_so_does_the_doctor(home: Plain) -> None:
    with home.start("up", "work") as up:
        up.says("node.joined")
        assert up.log.count("processes are held together by") == 1
        assert PROMISE.in_short() in up.log
        told = " ".join(home.rota("doctor").stdout.split())
        assert f"held together by boundary group: {PROMISE.in_short()}; nothing stronger" in told
        assert "for namespace, cgroup, guardian: it needs Linux, and this is darwin" in told


def test_ctrl_c_lets_what_runs_finish_without_linux(home: Plain) -> None:
    with home.start("up", "work") as up:
        up.says("node.joined")
        run_id = home.trigger("brief")
        wait_until(lambda: home.ok("logs", str(run_id)) == "begun\n", "it has begun")
        up.send(signal.SIGINT)
        up.says("stopping: waits for run")
        home.write("work/go", "")
        assert up.ends() == 0
        assert home.run_of(run_id)["state"] == "succeeded"
        assert list((home.path / "state").glob("agent-*")) == []


def test_when_the_node_is_killed_the_pipe_ends_what_it_ran_without_linux(home: Plain) -> None:
    home.env["ROTA_LEASE_LEASE_S"] = "120"  # so that it is not their switch that ends them
    with home.start("up", "work") as up:
        up.says("node.joined")
        home.trigger("long")
        home.trigger("works_with_others")
        pids = home.pids("shell-pids") + home.pids("python-pids")
        assert alive(pids) == pids
        up.send(signal.SIGKILL)
        wait_until(lambda: not alive(pids), "they are gone with the node", lambda: alive(pids))
    swept = home.rota("node", "sweep")
    assert swept.returncode == 0, swept.stderr
    assert "a process group does not hold those who leave it" in swept.stdout
