"""`rota bench` on real stores, with real nodes: small, but all of it."""

import json
import sqlite3
from typing import Any

import pytest

from tests.e2e.rig import Home

pytestmark = pytest.mark.timeout(300)

SMALL = ("--items", "600", "--tenants", "2", "--capacity", "40", "--concurrency", "20", "--batch", "50")
SHORT = ("--seconds", "0.3", "--idle-starts", "1")


def bench(home: Home, *arguments: str) -> dict[str, Any]:
    with home.start("bench", "dispatch", *SMALL, *arguments, "--json") as process:
        assert process.ends(within_s=250) == 0, process.log
        figures: dict[str, Any] = json.loads(process.log)
    return figures


def limits(home: Home) -> list[tuple[str, int]]:
    with sqlite3.connect(home.path / "rota.db") as conn:
        found = conn.execute("SELECT name, cap FROM rota_limit").fetchall()
    conn.close()
    return found


def check(figures: dict[str, Any]) -> None:
    assert (figures["lost"], figures["doubled"], figures["over_cap"]) == (0, 0, 0)
    assert figures["items_per_s"] > 0
    assert figures["ratio"] == pytest.approx(figures["items_per_s"] / figures["raw_items_per_s"], abs=0.001)
    assert 0 < figures["queries_per_item"] < 50
    assert 0 < figures["latency_p50_ms"] <= figures["latency_p99_ms"] <= figures["latency_max_ms"]
    assert 0 < figures["idle_start_p50_ms"] <= figures["idle_start_p99_ms"]


@pytest.mark.prove
def test_sqlite_with_one_node(home: Home) -> None:
    check(bench(home, *SHORT))
    for table in ("rota_item", "rota_run", "rota_queue", "rota_attempt"):
        assert home.count(table) == 0
    assert limits(home) == [("global", 100)]
    with sqlite3.connect(home.path / "rota.db") as conn:
        tables = [name for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    conn.close()
    assert [name for name in tables if name.startswith("bench")] == []
    again = bench(home, "--seconds", "0", "--idle-starts", "0")
    assert (again["lost"], again["doubled"], again["over_cap"]) == (0, 0, 0)


@pytest.mark.prove
@pytest.mark.parametrize("server", ["postgres", pytest.param("mariadb", marks=pytest.mark.nightly)])
def test_servers_with_two_nodes(home: Home, request: pytest.FixtureRequest, server: str) -> None:
    url = request.getfixturevalue(f"{server}_url")
    figures = bench(home, "--store", url, "--nodes", "2", *SHORT)
    check(figures)
    assert figures["nodes"] == 2


def test_a_tenant_with_half_of_the_items_stays_at_its_cap(home: Home) -> None:
    figures = bench(home, "--skew", "--seconds", "0", "--idle-starts", "0")
    assert (figures["lost"], figures["doubled"], figures["over_cap"]) == (0, 0, 0)
    assert figures["skew_cap"] == 4
    assert figures["skewed_at_cap"] > 0
    assert figures["latency_p99_ms"] is None


def test_a_store_in_use_is_refused_and_not_touched(home: Home) -> None:
    home.write("jobs.yaml", "jobs: {beat: {every_s: 3600, shell: ['true']}}")
    home.ok("store", "migrate")
    home.ok("job", "apply", "jobs.yaml")
    said = home.refused(4, "bench", "dispatch", *SMALL)
    assert "jobs that fire by themselves; a benchmark needs a store of its own" in said
    assert [name for name, _ in limits(home) if name.startswith("quota")] == []


def test_a_store_that_only_one_process_sees_is_refused(home: Home) -> None:
    said = home.refused(2, "bench", "dispatch", *SMALL, "--store", "memory:")
    assert "several processes share the store" in said


@pytest.mark.prove
@pytest.mark.parametrize("server", ["sqlite", "postgres"])
def test_a_store_is_given_a_past_which_stays(home: Home, request: pytest.FixtureRequest, server: str) -> None:
    """Figures from an empty store say little; the second run finds what the first has made."""
    url = "sqlite:///rota.db" if server == "sqlite" else request.getfixturevalue(f"{server}_url")
    none = ("--seconds", "0", "--idle-starts", "0", "--store", url)
    first = bench(home, "--history", "6000", *none)
    assert (first["history"], first["lost"], first["doubled"], first["over_cap"]) == (6000, 0, 0, 0)
    assert bench(home, "--history", "5000", *none)["history"] == 6000
    assert set(first["calibration"]) == {"loop_ms", "sleep_late_ms", "busy"}


def test_a_herd_is_fired_and_leaves_nothing_that_waits(home: Home) -> None:
    with home.start("bench", "fire", "--store", "sqlite:///rota.db", "--jobs", "300", "--json") as process:
        assert process.ends(within_s=100) == 0, process.log
        figures = json.loads(process.log)
    assert (figures["jobs"], figures["lost"], figures["doubled"]) == (300, 0, 0)
    assert 0 < figures["lateness_p50_s"] <= figures["lateness_p99_s"] <= figures["lateness_max_s"]
    assert home.count("rota_run") == 300
    assert home.count("rota_queue") == 0
