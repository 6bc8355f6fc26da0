"""What people ask of a cluster of real nodes: see it, drain, rebalance, claim, pause, examine, dump."""

from __future__ import annotations

import json
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.rig import Home, Process

pytestmark = pytest.mark.nightly  # each starts several nodes

JOBS = "jobs:\n" + "".join(f"  j{n}: {{every_s: 3600, shell: ['true']}}\n" for n in range(6))
TICK = "jobs: {tick: {every_s: 1, overlap: {policy: allow, live_max: 1000}, shell: ['true']}}"


class Cluster:
    """Some nodes on one store."""

    def __init__(self, home: Home, stack: ExitStack) -> None:
        self.home = home
        self._stack = stack
        self.nodes: dict[str, Process] = {}

    def start(self, name: str, *flags: str) -> None:
        self.nodes[name] = self._stack.enter_context(self.home.start("node", "start", "--name", name, *flags))
        self.nodes[name].says("scheduler.joined", within_s=60)

    def until(self, holds: Callable[[Any], bool], *command: str, within_s: float = 60) -> Any:
        """What a command answers when it answers what is waited for."""
        deadline = time.monotonic() + within_s
        while not holds(seen := self.home.json(*(command or ("cluster", "show")))):
            assert time.monotonic() < deadline, seen
            time.sleep(0.1)
        return seen

    def until_held(self, **wanted: int) -> Any:
        return self.until(lambda seen: {it["name"]: it["held"] for it in seen["schedulers"]} == wanted)


@pytest.fixture
def cluster(home: Home) -> Iterator[Cluster]:
    home.env |= {"ROTA_PLACEMENT_AUTOMATIC": "false", "ROTA_EXECUTOR_STATE_PATH": str(home.path / "state")}
    home.write("jobs.yaml", JOBS)
    home.ok("store", "migrate")
    home.ok("job", "apply", "jobs.yaml", "--yes")
    with ExitStack() as stack:
        yield Cluster(home, stack)


def test_an_empty_cluster_explains_itself(cluster: Cluster) -> None:
    home = cluster.home
    assert "no scheduler takes part; start one with: rota node" in home.ok("cluster", "show")
    assert "no scheduler takes part here: there is nothing to rebalance" in home.refused(4, "cluster", "rebalance")
    assert "no scheduler takes part here" in home.refused(4, "job", "claim", "j1")
    assert "error  no scheduler takes part" in home.rota("cluster", "doctor").stdout
    assert home.rota("cluster", "doctor", "--json").returncode == 7


def test_jobs_are_shown_moved_claimed_released_and_drained(cluster: Cluster) -> None:
    home = cluster.home
    cluster.start("a", "--alarm", "5")
    cluster.until_held(a=6)
    cluster.start("b")
    planned = home.ok("cluster", "rebalance", "--dry-run").splitlines()
    assert [line.split() for line in planned[1:3]] == [["a", "6", "3", "7", "5"], ["b", "0", "3", "7", "-"]]
    assert planned[-1] == "3 jobs would move"
    assert home.ok("cluster", "rebalance").splitlines()[-1] == "3 jobs moved"
    assert home.ok("cluster", "rebalance").splitlines()[-1] == "everybody has its share; nothing to move"
    seen = cluster.until_held(a=3, b=3)
    assert (seen["placement"], seen["jobs"], seen["active"], seen["spare"], seen["margin"]) == ("claim", 6, 2, 8, 1)
    assert seen["unowned"] == {"count": 0, "first": []}
    shown = home.ok("cluster", "show")
    assert "spare 8; 1 more scheduler may die" in shown
    assert "HELD (X)  LIMIT (N)  ALARM (M)  FAULTS (n)" in shown
    given = home.json("job", "claim", "j0", "--node", "b")
    assert (given["to"], given["arrived"]) == ("b", True)
    assert home.json("job", "release", "j0")["released_by"] == "b"
    cluster.until(lambda seen: sum(it["held"] for it in seen["schedulers"]) == 6)
    assert "no scheduler zz takes part here" in home.refused(3, "job", "claim", "j0", "--node", "zz")


def test_a_node_is_drained_and_comes_back(cluster: Cluster) -> None:
    home = cluster.home
    for name in ("a", "b"):
        cluster.start(name)
    cluster.until(lambda seen: sum(it["held"] for it in seen["schedulers"]) == 6)
    assert "2 schedulers would be drained at once" in home.refused(4, "node", "drain", "a", "b")
    assert home.ok("node", "drain", "a", "--wait") == "a is on the offline list; it is draining\n"
    seen = cluster.until_held(a=0, b=6)
    assert [(it["name"], it["state"], it["limit"]) for it in seen["schedulers"]] == [
        ("a", "draining", None),
        ("b", "online", 7),
    ]
    assert seen["drained"] == [{"name": "a", "roles": ["scheduler", "executor"], "keep": None, "deadline_at": None}]
    assert "a is on the offline list" in home.refused(4, "job", "claim", "j1", "--node", "a")
    cluster.nodes["a"].send(signal.SIGTERM)
    assert cluster.nodes["a"].ends() == 0
    cluster.start("a")
    assert [it["held"] for it in cluster.until_held(a=0, b=6)["schedulers"]] == [0, 6], "a restart does not undrain"
    assert home.ok("node", "undrain", "a", "--role", "executor").startswith("a is on the offline list as scheduler; ")
    assert home.ok("node", "undrain", "a") == "a is off the offline list; it is online\n"
    done = home.json("node", "drain", "b", "--release", "2", "--wait")
    assert done == [{"name": "b", "drained": False, "state": "online"}]
    cluster.until_held(a=2, b=4)
    assert "--release: only schedulers have jobs" in home.refused(
        2, "node", "drain", "b", "--release", "1", "--role", "executor"
    )
    assert {it["name"] for it in home.json("node", "list", "--all")} == {"a", "b"}


def test_nothing_fires_while_the_cluster_is_paused(cluster: Cluster) -> None:
    home = cluster.home
    home.write("tick.yaml", TICK)
    home.ok("job", "apply", "tick.yaml", "--yes")
    cluster.start("a")
    cluster.until(lambda runs: len(runs) > 0, "run", "list")
    assert home.ok("cluster", "pause", "--tenant", "default") == "tenant default is paused\n"
    latest = home.json("run", "list", "--limit", "1")[0]["id"]
    due = home.json("job", "show", "tick")["next_fire_at"]
    time.sleep(2.5)  # slots of every second pass by
    assert home.json("run", "list", "--limit", "1")[0]["id"] == latest
    shown = home.json("job", "show", "tick")
    assert (shown["held_by"], shown["next_fire_at"]) == (["tenant default"], due)
    assert "tenant default is paused since" in home.ok("job", "show", "tick")
    assert "tenant default, since" in home.ok("cluster", "show")
    assert home.ok("cluster", "resume") == "everything was not paused; still paused: tenant default\n"
    assert home.ok("cluster", "resume", "--tenant", "default") == "tenant default is resumed\n"
    cluster.until(lambda runs: runs[0]["id"] != latest, "run", "list", "--limit", "1")
    assert "--project: must be TENANT/PROJECT" in home.refused(2, "cluster", "pause", "--project", "etl")


def test_the_doctor_and_the_dump_look_at_real_nodes(cluster: Cluster) -> None:
    home = cluster.home
    for name in ("a", "b", "c"):
        cluster.start(name)
    cluster.until(lambda seen: sum(it["held"] for it in seen["schedulers"]) == 6)
    examined = home.rota("cluster", "doctor", "--json")
    assert examined.returncode == 0, examined.stdout
    found = json.loads(examined.stdout)["findings"]
    assert {it["code"] for it in found} <= {"boundary", "weak_boundary", "root_tasks"}
    assert "repair: woke every scheduler" in home.ok("cluster", "doctor", "--repair")
    assert "the dump is in dump.json" in home.ok("cluster", "dump", "--output", "dump.json")
    file = home.path / "dump.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    whole = json.loads(file.read_text())
    assert [it["name"] for it in whole["cluster"]["peers"]] == ["a", "b", "c"]
    assert {it["host"] for it in whole["nodes"]} == {"host-1"}
    assert all(it["digests"]["tzdata"] for it in whole["nodes"])
    home.refused(2, "cluster", "dump", "--output", "no/such/folder/dump.json")


def test_a_coordinator_that_is_away_is_told_of_and_a_forced_drain_does_not_need_it(cluster: Cluster) -> None:
    home, nowhere = cluster.home, ("--coordinator", "etcd://127.0.0.1:1")
    said = home.refused(5, "cluster", "show", *nowhere, "--json")
    assert json.loads(said)["error"]["code"] == "coordinator_unavailable"
    home.refused(5, "node", "drain", "a", *nowhere)
    assert home.json("cluster", "show")["drained"] == []
    assert home.ok("node", "drain", "a", "--force", *nowhere).startswith("a is on the offline list; ")
    assert "use zookeeper://host:port" in home.refused(2, "cluster", "show", "--coordinator", "nonsense://x")
