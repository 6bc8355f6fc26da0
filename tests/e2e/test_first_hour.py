"""A user's first hour, from an empty folder and the wheel: what is typed, and all that is printed.

Each chapter is kept in `first_hour/` as a person sees it, but for times, ids, ports and paths. If one changes, so
does what users see: look at the difference, and if it is right, `pytest --rewrite-snapshots` keeps it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.e2e.rig import until
from tests.e2e.story import Story
from tests.e2e.wheel import Installed
from tests.servers.postgres import PostgresDatabases

pytestmark = pytest.mark.timeout(300)  # dozens of commands, each a process

HELLO = """import rota

app = rota.App()


@app.task(every_s=2)
def hello(name: str = "world") -> str:
    print("saying hello to", name)
    return f"hello {name}"
"""

SHOP = """import rota

app = rota.App("shop")


@app.task(retries=1)
def price(item: str, amount: int = 1) -> float:
    prices = {"apple": 0.5, "pear": 0.75}
    return prices[item] * amount


@app.task
def letters(word: str) -> tuple[str, ...]:
    return tuple(word)
"""

PROGRAM = """import rota
from shop import app, letters, price

with app.client:
    handle = price.delay("apple", amount=4)
    print(handle)
    print(handle.result(timeout=60))
    print(price.map(["apple", "pear"], [1, 2]).result(timeout=60))
    print(letters.options(start_within_s=5, key="word-1").delay("abc").result(timeout=60))
    for wrong in ({"colour": "red"}, {"item": {"apple"}}):
        try:
            price.delay(**wrong)
        except (TypeError, rota.InvalidInput) as error:
            print(f"{type(error).__name__}: {error}")
    try:
        price.delay("melon").result(timeout=60)
    except rota.TaskFailed as error:
        print(error)
"""

MISTAKES = """jobs:
  report:
    cron: "0 25 * * *"
    pyton: reports:write
"""

REPORT = """jobs:
  report:
    title: What was sold
    cron: "0 3 * * *"
    zone: Europe/Berlin
    params: {region: eu}
    python: reports:write
"""

REPORTS = """from figures import sold


def write(region: str) -> dict[str, int]:
    print("writing the report of", region)
    return {"sold": sold(region)}
"""

FIGURES = """def sold(region: str) -> int:
    return {"eu": 42}[region]
"""

BROKEN = """jobs:
  print:
    python: printer:work
    retries: {max: 1, backoff: 0.1}
  load: {shell: [sh, -c, "echo loading; exit 3"]}
  elsewhere: {group: berlin, shell: ["true"]}
"""

PRINTER = """def work():
    tray()


def tray():
    raise RuntimeError("out of paper:\\n  tray 1 is empty\\n  tray 2 is missing")
"""

ALARMS = """alarms:
  - {command: [sh, -c, "cat >> FOLDER/told.jsonl"], kinds: [failure, recovery], merge_s: 0}
jobs:
  load: {shell: [sh, -c, "test -e FOLDER/data || exit 3"]}
  scratch: {shell: ["false"], alarms: []}
"""

CLUSTER = """jobs:
  import:
    group: import
    shell: [sh, -c, "echo attempt $ROTA_ATTEMPT; test $ROTA_ATTEMPT -gt 1 || sleep 600"]
"""

BEATS = "jobs:\n" + "".join(f'  beat-{number}: {{every_s: 1, shell: ["true"]}}\n' for number in range(1, 7))

BEFORE = """jobs:
  import: {cron: "0 1 * * *", shell: ["true"]}
  export: {cron: "0 2 * * *", shell: ["true"]}
  report: {cron: "0 3 * * *", shell: ["true"]}
"""

REPOSITORY = """[definitions]
repository = "shop"
"""
AFTER = """jobs:
  import: {cron: "0 1 * * *", shell: ["true"]}
  report: {cron: "0 4 * * *", retries: 2, shell: ["true"]}
  archive: {cron: "0 5 * * *", shell: ["true"]}
"""


@pytest.fixture
def story(tmp_path: Path, installed: Installed) -> Story:
    return Story(tmp_path, installed, ROTA_COORDINATOR_SESSION_S="30")  # a slow disk ends no session


def ended(story: Story, run: int) -> bool:
    return story.json(f"run show {run}")["state"] in ("succeeded", "failed", "cancelled")


def test_hello(story: Story, installed: Installed, pytestconfig: pytest.Config) -> None:
    assert story.where().is_relative_to(installed.folder)
    story.rota("ls", code=6)
    story.write("hello.py", HELLO)
    with story.start("up hello.py") as up:
        up.says("scheduler.joined")
        until(lambda: len(story.json("run list")) > 1 and ended(story, 1))
        story.rota("run list --before 2")
        story.rota("run show 1")
        story.rota("run logs 1")
        story.rota("run explain 1")
        story.rota("job list")
        story.rota("job preview hello -n 2")
        story.rota("status")
        story.rota("jb list", code=2)
        story.rota("run show 1000000", code=3)
        story.stop(up, "job.created", "node.started", "node.joined", "scheduler.joined", "node.stopped")
    story.keep("1-hello", pytestconfig)


def test_calls_and_results(story: Story, pytestconfig: pytest.Config) -> None:
    story.write("shop.py", SHOP)
    story.write("program.py", PROGRAM)
    with story.start("up shop.py", ROTA_EXECUTOR_SEATS="1") as up:  # one after the other, as they are listed
        up.says("scheduler.joined")
        story.python("program.py")
        until(lambda: all(len(story.json(f"run show {run}")["history"]) == 2 for run in (1, 2, 3, 4)))
        story.rota("run list")
        story.rota("run show 2")
        story.rota("run explain 4")
        story.rota("run logs 4")
        story.stop(up)
    story.keep("2-calls", pytestconfig)


def test_yaml_with_modules_beside_it(story: Story, pytestconfig: pytest.Config) -> None:
    story.write("jobs.yaml", MISTAKES)
    story.rota("up jobs.yaml", code=2)
    story.write("jobs.yaml", REPORT)
    story.write("reports.py", REPORTS)
    story.write("figures.py", FIGURES)
    with story.start("up jobs.yaml") as up:
        up.says("scheduler.joined")
        story.rota("job trigger report")
        until(lambda: ended(story, 1))
        story.rota("run logs 1")
        story.rota("run show 1")
        story.rota("job show report")
        story.rota("job trigger report --param region=us")
        until(lambda: ended(story, 2))
        story.rota("run logs 2")
        story.stop(up)
    story.keep("3-yaml", pytestconfig)


def test_a_failure_and_its_reason(story: Story, pytestconfig: pytest.Config) -> None:
    story.write("jobs.yaml", BROKEN)
    story.write("printer.py", PRINTER)
    with story.start("up jobs.yaml") as up:
        up.says("scheduler.joined")
        for job in ("print", "load", "elsewhere"):
            story.rota(f"job trigger {job}")
        until(lambda: all(ended(story, run) for run in (1, 2)))
        story.rota("run list")
        for run in (1, 2):
            story.rota(f"run explain {run}")
            story.rota(f"run show {run}")
            story.rota(f"run logs {run}")
        story.rota("run explain 3")
        story.rota("run cancel 3")
        story.stop(up)
    story.keep("4-failure", pytestconfig)


@pytest.mark.prove
def test_an_alarm_that_the_file_declares(story: Story, pytestconfig: pytest.Config) -> None:
    told = story.folder / "told.jsonl"
    story.write("jobs.yaml", ALARMS.replace("FOLDER", str(story.folder)))
    with story.start("up jobs.yaml") as up:
        up.says("scheduler.joined")
        story.rota("alarm list")
        story.rota("job trigger load")
        until(lambda: ended(story, 1))  # before the next: failures are listed as they happened
        story.rota("job trigger scratch")
        until(lambda: ended(story, 2))
        until(lambda: told.exists() and told.read_text().count("\n") == 1)
        until(lambda: (last := story.json("alarm list")[0]["last"]) and last["arrived"])
        story.rota("alarm list")
        story.write("data", "42\n")
        story.rota("job trigger load")
        until(lambda: told.read_text().count("\n") == 2 and not story.json("alarm list")[0]["pending"])
        story.python("-m json.tool --json-lines --no-ensure-ascii told.jsonl")
        story.rota("alarm history")
        story.stop(up)
    story.keep("5-alarm", pytestconfig)


@pytest.mark.prove
def test_three_nodes_of_which_one_is_killed(
    tmp_path: Path, installed: Installed, postgres_server: PostgresDatabases, pytestconfig: pytest.Config
) -> None:
    story = Story(tmp_path, installed, postgres_server.url(asyncio.run(postgres_server.create_database())))
    story.write("jobs.yaml", CLUSTER)
    story.write("beats.yaml", BEATS)
    with ExitStack() as nodes:
        killed = nodes.enter_context(story.start("node start --name a --group import --definitions jobs.yaml"))
        killed.says("scheduler.joined", within_s=90)
        until(lambda: story.json("job list"))
        story.rota("job trigger import")
        until(lambda: story.json("run show 1")["items"][0]["state"] == "running")
        left = []
        for options in ("--name b --group import", "--name c"):
            left.append(nodes.enter_context(story.start(f"node start {options}")))
            left[-1].says("scheduler.joined", within_s=90)  # before the next: nodes are listed as they joined
        story.rota("node list")
        story.rota("job apply beats.yaml")
        until(lambda: shared(story, "abc", 2))
        story.rota("status")
        story.rota("run explain 1")
        story.says("kill -9 the process of a")
        killed.send(signal.SIGKILL)
        until(lambda: ended(story, 1))
        story.rota("run show 1")
        story.rota("run logs 1")
        before = max(run["id"] for run in story.json("run list --limit 1"))
        for number in range(1, 7):
            until(lambda job=f"beat-{number}": fired(story, job, before))
        until(lambda: shared(story, "bc", 3))
        story.rota("cluster rebalance")
        with quiet(story):
            story.rota("node list --all")
        story.rota("status")
        story.rota("doctor", without="note|  +(?:why: (?:no process|they can)|do: +set executor)")
        until(lambda: any("node.gone" in node.log for node in left))
        story.log(next(node for node in left if "node.gone" in node.log), "node.gone")
    story.keep("6-cluster", pytestconfig)


def shared(story: Story, names: str, each: int) -> bool:
    """Whether each has so many jobs; who has which after a death is chance, so they are told to share."""
    seen = story.json("cluster show")
    held = {it["name"]: it["held"] for it in seen["schedulers"]}
    if held == dict.fromkeys(names, each) and not seen["handovers"] and not seen["unowned"]["count"]:
        return True
    story.json("cluster rebalance --no-wait")
    return False


@contextmanager
def quiet(story: Story) -> Iterator[None]:
    """While nothing runs, so that seats are free."""
    story.json("cluster pause")
    until(lambda: not any(story.json(f"run list --state {state}") for state in ("waiting", "running")))
    yield
    story.json("cluster resume")


def fired(story: Story, job: str, after: int) -> bool:
    """Whether a job has run since."""
    return any(run["id"] > after for run in story.json(f"run list --job {job} --state succeeded --limit 1"))


def test_an_upgrade_of_the_definitions(story: Story, pytestconfig: pytest.Config) -> None:
    story.write("jobs.yaml", BEFORE)
    story.rota("store migrate")
    story.rota("job apply jobs.yaml")
    story.write("jobs.yaml", AFTER)
    story.rota("job apply jobs.yaml --prune", code=2)
    story.write("rota.toml", REPOSITORY)
    story.rota("job apply jobs.yaml --prune --take-over --dry-run")
    story.rota("job apply jobs.yaml --prune --take-over")
    story.rota("job list")
    story.rota("job apply jobs.yaml --prune")
    story.write("other.yaml", BEFORE)
    story.rota("job apply other.yaml", code=2)
    story.rota("job show report")
    story.keep("7-upgrade", pytestconfig)
