"""A job remembers who defines it: two sources are refused, what a source gives up is pruned, and what somebody deleted
stays deleted until somebody asks for it."""

from __future__ import annotations

import sqlite3
import time

import pytest

from tests.e2e.rig import Home

TWO = """
jobs:
  report: {every_s: 3600, shell: ["true"]}
  clean: {every_s: 3600, shell: ["true"]}
"""
ONE = TWO.replace('  clean: {every_s: 3600, shell: ["true"]}\n', "")
APP = """
import rota
app = rota.App("shop")
@app.task(every_s=3600)
def report(): ...
"""


@pytest.fixture
def empty(home: Home) -> Home:
    home.ok("store", "migrate")
    return home


def sources(home: Home) -> dict[str, str | None]:
    return {job["name"]: job["source"] for job in home.json("job", "list")}


def test_a_job_remembers_the_file_or_the_app_that_defines_it(empty: Home) -> None:
    empty.write("jobs.yaml", ONE)
    empty.write("shop.py", APP.replace("report", "sell"))
    empty.write("folder/more.yaml", ONE.replace("report", "more"))
    empty.write("unnamed.py", APP.replace("report", "count").replace('"shop"', ""))
    empty.ok("job", "apply", "jobs.yaml", "shop.py", "folder", str(empty.path / "unnamed.py"))
    assert sources(empty) == {
        "report": "file jobs.yaml",
        "sell": "app shop",
        "more": "file folder",
        "count": "file unnamed.py",
    }


def test_two_sources_for_one_job_are_an_error_that_names_both(empty: Home) -> None:
    empty.write("jobs.yaml", ONE)
    empty.write("shop.py", APP)
    empty.ok("job", "apply", "jobs.yaml")
    said = empty.refused(2, "job", "apply", "shop.py")
    assert "report: belongs to file jobs.yaml, and app shop defines it too; remove it from one of them" in said
    assert sources(empty) == {"report": "file jobs.yaml"}
    empty.ok("job", "apply", "--take-over", "shop.py")
    assert sources(empty) == {"report": "app shop"}


def test_a_job_may_move_from_one_file_to_another_when_both_are_applied(empty: Home) -> None:
    empty.write("a.yaml", TWO)
    empty.write("b.yaml", ONE.replace("report", "other"))
    empty.ok("job", "apply", "a.yaml", "b.yaml")
    empty.write("a.yaml", ONE)
    empty.write("b.yaml", TWO.replace("report", "other"))
    assert "1 adopted" in empty.ok("job", "apply", "a.yaml", "b.yaml")
    assert sources(empty) == {"report": "file a.yaml", "clean": "file b.yaml", "other": "file b.yaml"}


def test_what_a_file_no_longer_defines_is_pruned_and_shown_before(empty: Home) -> None:
    empty.write("rota.toml", '[definitions]\nrepository = "shop"\n')
    empty.write("jobs.yaml", TWO)
    empty.write("other.yaml", ONE.replace("report", "other"))
    empty.ok("job", "apply", "jobs.yaml", "other.yaml")
    empty.write("jobs.yaml", ONE)
    assert "nothing to do" in empty.ok("job", "apply", "jobs.yaml"), "nothing is deleted unless asked for"
    said = empty.ok("job", "apply", "--prune", "--dry-run", "jobs.yaml")
    assert "\ndelete  clean  file jobs.yaml of shop does not define it any more\n" in said
    assert said.endswith("0 to create, 0 to change, 1 to delete, 1 unchanged\n")
    assert set(sources(empty)) == {"report", "clean", "other"}
    assert empty.ok("job", "apply", "--prune", "--yes", "jobs.yaml").endswith("1 deleted, 1 unchanged\n")
    assert set(sources(empty)) == {"report", "other"}, "those of other files stay"
    empty.write("jobs.yaml", TWO)
    assert "1 created" in empty.ok("job", "apply", "jobs.yaml"), "it may come back"


def test_files_of_one_path_and_two_repositories_are_told_apart(empty: Home) -> None:
    """Two repositories, each with a jobs.yaml, share a store."""
    empty.write("jobs.yaml", TWO)
    empty.ok("job", "apply", "--repository", "shop", "jobs.yaml")
    empty.write("jobs.yaml", ONE.replace("report", "other"))
    empty.ok("job", "apply", "--repository", "bank", "--prune", "--yes", "jobs.yaml")
    assert sources(empty) == {
        "report": "file jobs.yaml of shop",
        "clean": "file jobs.yaml of shop",
        "other": "file jobs.yaml of bank",
    }
    empty.write("jobs.yaml", ONE)
    said = empty.refused(2, "job", "apply", "--repository", "bank", "jobs.yaml")
    assert "report: belongs to file jobs.yaml of shop, and file jobs.yaml of bank defines it too" in said
    assert "definitions.repository: must be 1 to 100 of" in empty.refused(
        2, "job", "apply", "--repository", "a b", "jobs.yaml"
    )


def test_without_a_repository_a_file_prunes_nothing_and_says_what_to_do(empty: Home) -> None:
    empty.write("jobs.yaml", TWO)
    empty.ok("job", "apply", "jobs.yaml")
    empty.write("jobs.yaml", ONE)
    for more in ([], ["--dry-run"]):
        said = empty.refused(2, "job", "apply", "--prune", "--yes", *more, "jobs.yaml")
        assert "--prune: file jobs.yaml could also be a file of another repository" in said
        assert "--repository NAME" in said
    assert set(sources(empty)) == {"report", "clean"}
    empty.refused(2, "job", "apply", "--prune", "--yes", "--repository", "shop", "jobs.yaml")
    said = empty.ok("job", "apply", "--prune", "--yes", "--repository", "shop", "--take-over", "jobs.yaml")
    assert said.endswith("1 adopted, 1 deleted, 0 unchanged\n"), said
    assert sources(empty) == {"report": "file jobs.yaml of shop"}


def test_apps_of_one_name_and_two_tenants_are_two_sources(empty: Home) -> None:
    red = APP.replace('"shop"', '"shop", tenant="red"')
    empty.write("red.py", red + "@app.task(every_s=3600)\ndef sell(): ...\n")
    empty.write("blue.py", red.replace("red", "blue"))
    empty.ok("job", "apply", "red.py")
    assert "1 created" in empty.ok("job", "apply", "--prune", "--yes", "blue.py")
    assert sources(empty) == {
        "red/default/report": "app red/default/shop",
        "red/default/sell": "app red/default/shop",
        "blue/default/report": "app blue/default/shop",
    }
    empty.write("red.py", red)
    assert "1 deleted" in empty.ok("job", "apply", "--prune", "--yes", "red.py")


def test_a_deployment_behind_a_link_stays_one_source(empty: Home) -> None:
    for release in ("first", "second"):
        empty.write(f"{release}/jobs.yaml", ONE)
        link = empty.path / "current"
        link.unlink(missing_ok=True)
        link.symlink_to(release)
        empty.ok("job", "apply", "current/jobs.yaml")
        assert sources(empty) == {"report": "file current/jobs.yaml"}


def test_a_file_with_a_problem_prunes_nothing(empty: Home) -> None:
    empty.write("rota.toml", '[definitions]\nrepository = "shop"\n')
    empty.write("jobs/a.yaml", ONE)
    empty.write("jobs/b.yaml", ONE.replace("report", "other"))
    empty.ok("job", "apply", "jobs")
    empty.write("jobs/b.yaml", "jobs: [")
    empty.refused(2, "job", "apply", "--prune", "--yes", "jobs")
    assert set(sources(empty)) == {"report", "other"}
    (empty.path / "jobs" / "b.yaml").unlink()
    assert "1 deleted" in empty.ok("job", "apply", "--prune", "--yes", "jobs"), "a file that is gone, too"


def test_a_deleted_job_that_a_node_still_defines_is_told_of_and_stays_deleted(empty: Home) -> None:
    empty.write("jobs.yaml", TWO)
    empty.ok("job", "apply", "jobs.yaml")
    empty.ok("job", "delete", "--yes", "clean")
    with empty.start("up", "jobs.yaml") as node:
        node.says("was deleted by hand, and file jobs.yaml still defines it")
        assert set(sources(empty)) == {"report"}
        assert "1 created" in empty.ok("job", "apply", "jobs.yaml"), "somebody asks for it"
    assert sources(empty) == {"report": "file jobs.yaml", "clean": "file jobs.yaml"}


def test_a_node_leaves_the_jobs_of_another_source_alone_and_says_so(empty: Home) -> None:
    empty.write("jobs.yaml", ONE)
    empty.write("shop.py", APP + "@app.task(every_s=3600)\ndef sell(): ...\n")
    empty.ok("job", "apply", "jobs.yaml")
    with empty.start("up", "shop.py") as node:
        node.says("belongs to file jobs.yaml, and app shop defines it too")
        node.says("job.created")
    assert sources(empty) == {"report": "file jobs.yaml", "sell": "app shop"}


def test_jobs_of_release_0_1_adopt_the_first_source_that_applies_them(empty: Home) -> None:
    empty.write("jobs.yaml", ONE)
    empty.ok("job", "apply", "jobs.yaml")
    before = empty.json("job", "list")[0]
    with sqlite3.connect(empty.path / "rota.db") as conn:
        conn.execute("UPDATE rota_job SET source = NULL")
    conn.close()
    assert sources(empty) == {"report": None}
    assert "1 adopted" in empty.ok("job", "apply", "jobs.yaml")
    after = empty.json("job", "list")[0]
    assert after["source"] == "file jobs.yaml"
    same = ("next_slot_at", "next_fire_at", "version", "digest", "changed_at", "state")
    assert {key: after[key] for key in same} == {key: before[key] for key in same}, "nothing else changes"


def test_who_is_told_stands_in_the_definition_and_goes_with_it(home: Home) -> None:
    told = home.path / "told"
    home.write("page.sh", f"#!/bin/sh\ncat >> {told}\n").chmod(0o755)
    page = f'alarms: [{{command: ["{home.path}/page.sh"], kinds: [failure], merge_s: 0}}]'
    jobs = f'{page}\njobs:\n  breaks: {{every_s: 1, shell: ["false"]}}\n'
    home.write("jobs.yaml", jobs)
    with home.start("up", "jobs.yaml") as node:
        node.says("node.started ")
        deadline = time.monotonic() + 60
        while not told.exists() or "run_failed" not in told.read_text():
            assert time.monotonic() < deadline, node.log
            time.sleep(0.1)
    (rule,) = home.json("alarm", "list")
    assert rule["name"].startswith("defined-command-")
    assert rule["scope"] == "job/default/default/breaks"
    assert "belongs to the definition of the job" in home.refused(4, "alarm", "remove", rule["name"])
    home.write("jobs.yaml", jobs.replace(page, ""))
    home.ok("job", "apply", "jobs.yaml")
    assert home.json("alarm", "list") == []
