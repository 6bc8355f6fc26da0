"""`rota job` and `rota run`: what each command does and prints."""

import json
import re
import subprocess
import sys

from tests.e2e.rig import JOBS, Home, Terminal

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def test_apply_shows_its_plan_and_stores_all(home: Home) -> None:
    home.write("jobs.yaml", JOBS)
    home.ok("store", "migrate")
    assert "3 to create, 0 to change" in home.ok("job", "apply", "jobs.yaml", "--dry-run")
    assert home.count("rota_job") == 0
    shown = home.ok("job", "apply", "jobs.yaml")
    assert "create  beat" in shown
    assert "3 created, 0 changed, 0 unchanged" in shown
    assert home.count("rota_job") == 3


def test_apply_says_which_fields_change_and_changes_nothing_twice(stored: Home) -> None:
    assert "nothing to do: 3 unchanged" in stored.ok("job", "apply", "jobs.yaml")
    stored.write("jobs.yaml", JOBS.replace("every_s: 1", "every_s: 2\n    title: Beat"))
    answer = stored.json("job", "apply", "jobs.yaml")
    assert answer["applied"] is True
    assert answer["actions"] == [
        {"job": "beat", "action": "change", "fields": ["title", "schedule"], "never_due": False, "reason": ""},
        {"job": "nightly", "action": "nothing", "fields": [], "never_due": False, "reason": ""},
        {"job": "by-hand", "action": "nothing", "fields": [], "never_due": False, "reason": ""},
    ]
    assert stored.json("job", "show", "beat")["version"] == 2


def test_apply_takes_files_and_folders_together_and_refuses_a_name_in_two_of_them(stored: Home) -> None:
    stored.write("more/a.yaml", "jobs: {a: {every_s: 5, shell: [ls]}}")
    stored.write("b.py", "import rota\napp = rota.App(project='py')\n@app.task(every_s=5)\ndef b(): ...\n")
    assert "2 created" in stored.ok("job", "apply", "more", "b.py")
    assert {job["name"] for job in stored.json("job", "list")} == {"beat", "nightly", "by-hand", "a", "py/b"}
    stored.write("twin.yaml", "jobs: {a: {every_s: 5, shell: [ls]}}")
    assert "jobs.a: is defined in more too" in stored.refused(2, "job", "apply", "more", "twin.yaml")


def test_one_wrong_definition_keeps_all_out(stored: Home) -> None:
    stored.write("new.yaml", "jobs:\n  good: {every_s: 5, shell: [ls]}\n  bad: {every_s: -5, shell: [ls]}\n")
    said = stored.refused(2, "job", "apply", "new.yaml")
    assert said.startswith("error: new.yaml:3: jobs.bad.every_s: ")
    assert stored.count("rota_job") == 3


def test_a_person_is_asked_before_jobs_are_stored(home: Home) -> None:
    home.write("jobs.yaml", JOBS)
    home.ok("store", "migrate")
    with Terminal(home, "job", "apply", "jobs.yaml") as terminal:
        terminal.shows("Apply 3 of 3? [y/N]")
        terminal.type("n\n")
        assert terminal.ends() == 130
    assert home.count("rota_job") == 0
    with Terminal(home, "job", "apply", "jobs.yaml") as terminal:
        terminal.shows("[y/N]")
        terminal.type("y\n")
        assert terminal.ends() == 0
    assert home.count("rota_job") == 3
    with Terminal(home, "job", "delete", "nightly", "--yes") as terminal:
        assert terminal.ends() == 0
        assert "[y/N]" not in terminal.shown


def test_list_and_show_tell_all_fields(stored: Home) -> None:
    text = stored.ok("job", "list")
    assert "cron 30 2 * * * Europe/Berlin" in text
    assert "every 1 s" in text
    listed = stored.json("job", "list")
    assert [job["name"] for job in listed] == ["beat", "nightly", "by-hand"]
    assert set(listed[0]) == {
        *("id", "name", "tenant", "project", "title", "state", "trigger", "next_slot_at", "next_fire_at"),
        *("settled_at", "version", "revision", "digest", "created_at", "changed_at", "source"),
    }
    assert INSTANT.fullmatch(listed[0]["next_fire_at"])
    shown = stored.json("job", "show", "default/default/by-hand")
    assert shown["definition"]["params"] == {"region": "eu"}
    assert [line["kind"] for line in shown["history"]] == ["job.created"]
    assert "queue, key load-${region}" in stored.ok("job", "show", "by-hand")


def test_a_listing_can_be_narrowed(stored: Home) -> None:
    stored.ok("job", "pause", "beat", "nightly")
    assert [job["name"] for job in stored.json("job", "list", "--state", "paused")] == ["beat", "nightly"]
    assert stored.json("job", "list", "--project", "other") == []
    assert [job["name"] for job in stored.json("job", "list", "--tenant", "default", "--limit", "1")] == ["beat"]
    assert "there are more than 1" in stored.ok("job", "list", "--limit", "1")


def test_pause_resume_and_delete_say_what_the_jobs_are_now(stored: Home) -> None:
    assert stored.ok("job", "pause", "beat") == "beat is paused\n"
    assert stored.json("job", "pause", "beat")[0]["next_fire_at"] is None
    assert stored.ok("job", "resume", "beat").startswith("beat is enabled, next at ")
    for _ in range(2):
        stored.json("job", "trigger", "by-hand")
    said = stored.ok("job", "delete", "by-hand")
    assert "by-hand: 1 queued run will be cancelled; 1 run will go on" in said
    assert "by-hand is deleted" in said
    assert "was deleted" in stored.refused(3, "job", "show", "by-hand")
    assert [job["name"] for job in stored.json("job", "list", "--state", "deleted")] == ["by-hand"]
    assert [run["state"] for run in stored.json("run", "list", "--job", "by-hand")] == ["cancelled", "waiting"]


def test_preview_marks_where_the_clock_jumps(stored: Home) -> None:
    shown = stored.json("job", "preview", "nightly", "-n", "400")
    assert len(shown) == 400
    assert set(shown[0]) == {"slot_at", "due_at", "local_at", "mark", "skipped"}
    marks = {it["mark"].partition(":")[0] for it in shown if it["mark"]}
    assert marks == {"gap", "fold"}
    assert "moved to 03:00" in stored.ok("job", "preview", "nightly", "-n", "400")
    assert "runs only when asked" in stored.ok("job", "preview", "by-hand")


def test_preview_of_a_file_needs_no_store(home: Home) -> None:
    home.write(
        "jobs.yaml",
        "calendars: {never-monday: {weekdays: tue-sun}}\n"
        "jobs: {a: {cron: '0 3 * * mon', calendar: never-monday, shell: [ls]}}",
    )
    assert "skipped: calendar never-monday" in home.ok("job", "preview", "a", "-n", "2", "--file", "jobs.yaml")
    assert not (home.path / "rota.db").exists()
    assert "there is no job b in jobs.yaml" in home.refused(3, "job", "preview", "b", "--file", "jobs.yaml")


def test_trigger_obeys_overlap_and_starts_one_run_per_key(stored: Home) -> None:
    first = stored.json("job", "trigger", "by-hand", "--key", "k1", "--params", '{"region": "us", "n": 1}')
    assert (first["state"], first["params"]) == ("waiting", {"region": "us", "n": 1})
    assert stored.json("job", "trigger", "by-hand", "--key", "k1")["id"] == first["id"]
    later = [stored.json("job", "trigger", "by-hand", "--param", "region=us") for _ in range(2)]
    assert [run["state"] for run in later] == ["waiting", "waiting"]
    assert "is skipped: overlap" in stored.ok("job", "trigger", "by-hand", "--param", "region=us")
    assert "is waiting" in stored.ok("job", "trigger", "by-hand", "--param", "region=asia")


def test_runs_can_be_listed_paged_and_shown(stored: Home) -> None:
    for _ in range(3):
        stored.json("job", "trigger", "beat", "--param", "day=monday")
    runs = stored.json("run", "list", "--job", "beat", "--limit", "2")
    older = stored.json("run", "list", "--job", "beat", "--before", str(runs[-1]["id"]))
    assert len(runs) == 2
    assert len(older) >= 1
    assert {run["id"] for run in runs}.isdisjoint(run["id"] for run in older)
    assert f"--before {runs[-1]['id']}" in stored.ok("run", "list", "--job", "beat", "--limit", "2")
    shown = stored.json("run", "show", str(runs[0]["id"]))
    assert (shown["job"], shown["cause"], shown["params"]) == ("beat", "manual", {"day": "monday"})
    assert [item["state"] for item in shown["items"]] == ["ready"]
    assert [line["kind"] for line in shown["history"]] == ["run.started"]
    text = stored.ok("run", "show", str(runs[0]["id"]))
    assert "day='monday'" in text
    assert "run.started" in text
    assert stored.json("run", "list", "--state", "failed") == []


def test_config_show_names_sources_and_hides_passwords(home: Home) -> None:
    home.write("rota.toml", "[scheduler]\nlook_s = 2\n")
    secret = {"ROTA_STORE": "postgresql://me:s3cret@db/x?sslpassword=s3cret", "ROTA_NODE_NAME": "n1"}
    done = home.rota("config", "show", "--json", env=secret)
    found = {it["name"]: (it["value"], it["source"]) for it in json.loads(done.stdout)}
    assert found["store.url"] == ("postgresql://me:***@db/x?sslpassword=***", "ROTA_STORE")
    assert found["node.name"] == ("n1", "ROTA_NODE_NAME")
    assert found["scheduler.look_s"] == (2.0, "rota.toml")
    assert found["definitions.path"] == ("", "default")
    assert home.rota("config", "show", "--store", "sqlite:///x.db", env=secret).stdout.count("flag") == 1
    assert "s3cret" not in home.rota("config", "show", env=secret).stdout


def test_global_options_may_stand_anywhere(stored: Home) -> None:
    url = f"sqlite:///{stored.path}/rota.db"
    for words in (
        ["--store", url, "--json", "job", "list"],
        ["job", "--store", url, "--json", "list"],
        ["job", "list", "--store", url, "--json"],
    ):
        assert len(json.loads(stored.ok(*words))) == 3


def test_help_names_every_command_and_exit_code_and_imports_little(home: Home) -> None:
    text = home.ok("--help")
    for word in ("up", "node", "job", "run", "store", "config", "130", "Exit codes"):
        assert word in text
    assert re.fullmatch(r"rota \d+\.\d+\.\d+\n", home.ok("--version"))
    code = "import sys; from rota.cli.main import run; run(sys.argv[1:]); print(*sys.modules)"
    for words in (["--help"], ["job", "--help"]):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
        loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
        assert loaded.isdisjoint({"sqlalchemy", "alembic", "pydantic", "rich", "structlog", "msgspec"})
