"""A cluster whose nodes are replaced one by one by those of another release, while there is work of every kind.

What it had to do is known from what was asked of it: a slot for every second in which a job was enabled, an item for
every number that was assigned. What was done is read from the store behind the product's back, and from the lines that
the tasks themselves wrote.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.checkers.executing import END, START, Line
from tests.checkers.slots import SECOND
from tests.cluster.processes import SHORT
from tests.cluster.releases import Release
from tests.cluster.shift import Shift

TENANT = "acme"
TICKING = tuple(f"ticking-{number}" for number in range(4))
QUEUED, RETRIED, PAUSED = "queued", "retried", "paused"
FAILURES = 2
"""In so many attempts every run of `RETRIED` fails, or is lost, before it succeeds."""
ALLOW = {"policy": "allow", "live_max": 1000}
JOBS = {
    **{name: {"python": "tasks:nap", "params": {"info": {"ms": 2500}}, "overlap": ALLOW} for name in TICKING},
    # It takes longer than until the next is due, so that there is always one that waits.
    QUEUED: {
        "python": "tasks:nap",
        "params": {"info": {"ms": 1200}},
        "overlap": {"policy": "queue", "queue_max": 1000},
    },
    RETRIED: {
        "python": "tasks:fail",
        "params": {"info": {"failures": FAILURES, "ms": 800}},
        "overlap": ALLOW,
        "retries": {"max": FAILURES, "backoff": 1},
    },
    PAUSED: {"python": "tasks:nap", "overlap": ALLOW},
}
SEATS = 24
MEANWHILE = 10
"""So many items a node must have begun and ended before it counts as one that works."""
CLOSED_S = 130.0
"""Within that even a node that rests looks for assignments that are done."""

ASSIGN = """
import json, sys, rota
url, tenant, numbers = sys.argv[1:]
with rota.Client(url) as client:
    infos = [{"tenant": tenant, "ms": 1000}] * len(json.loads(numbers))
    client.assign(tenant, json.loads(numbers), infos, handler="nap", app="default/default")
"""


class Item(NamedTuple):
    """An item, and the job that it is of; none if it was assigned."""

    id: int
    job: str | None
    state: str


class Attempt(NamedTuple):
    """An attempt that is over."""

    item: int
    attempt: int
    outcome: str
    node: str


def write_jobs(path: Path) -> Path:
    """Write the definitions that a cluster is upgraded with. JSON is YAML."""
    path.write_text(json.dumps({"jobs": {name: {"every_s": 1, **it} for name, it in JOBS.items()}}))
    return path


class Upgrade:
    """The nodes, what was asked of them, and what they did."""

    def __init__(self, shift: Shift, *, closed_s: float = CLOSED_S) -> None:
        self.shift = shift
        self._closed_s = closed_s
        self._joined: dict[str, int] = {}
        """The last incarnation that was waited for, by name."""
        self._numbers: list[str] = []
        self._killed: set[str] = set()

    async def start(self, name: str, release: Release, *, mutant: str | None = None) -> None:
        """Start a node, and wait until it has joined."""
        place = str(self.shift.watcher.app.parent)
        own = {"ROTA_EXECUTOR_SEATS": str(SEATS), "ROTA_EXECUTOR_MODULES": "tasks"}
        settings = {**SHORT, **own, "ROTA_EXECUTOR_MODULE_PATH": place}
        self.shift.node(name, settings=settings, python=release.python, mutant=mutant).start()

        async def joined() -> bool:
            last = (await self._incarnations()).get(name, 0)
            before, self._joined[name] = self._joined.get(name, 0), last
            return last > before

        await self.shift.until_asked(joined, f"{name} to join")

    async def _incarnations(self) -> dict[str, int]:
        return dict(await self.shift.witness.ask("SELECT name, max(id) FROM rota_node GROUP BY name"))

    async def stop(self, name: str) -> None:
        """Tell a node to stop, and wait until it has finished what it has."""
        node = self.shift.nodes[name]
        node.send(signal.SIGTERM)
        assert await asyncio.to_thread(node.ended, 60) == 0, node.log

    def kill(self, name: str) -> None:
        self._killed.add(name)
        self.shift.nodes[name].kill()

    async def assign(self, release: Release, count: int) -> None:
        """Assign items, as a program does that has this release installed."""
        numbers = [f"n{number}" for number in range(len(self._numbers), len(self._numbers) + count)]
        await release.run(ASSIGN, self.shift.url, TENANT, json.dumps(numbers))
        self._numbers += numbers

    async def until_all_work(self, what: str) -> None:
        """Wait until each node fires, begins and ends items, and there is a live run of every kind."""
        since = await self.shift.witness.now()
        await self.shift.until_asked(lambda: self._all_work(since), f"{what} to work, each at everything")

    async def _all_work(self, since: int) -> bool:
        await asyncio.sleep(0.1)  # so as not to be a burden on the store
        ask = self.shift.witness.ask
        fired = f"SELECT actor, count(*) FROM rota_event WHERE kind = 'run.started' AND at > {since} GROUP BY actor"
        ended = f"SELECT node, count(*) FROM rota_attempt WHERE assigned_at > {since} GROUP BY node"
        has = "SELECT node_id, count(*) FROM rota_queue WHERE state = 'running' GROUP BY node_id"
        waits = "SELECT 1 FROM rota_run r JOIN rota_job j ON j.id = r.job_id WHERE r.state = 'waiting' AND j.name = "
        if not self._joined.keys() <= dict(await ask(fired)).keys():
            return False
        done = Counter(dict(await ask(ended)))
        if min(done[name] for name in self._joined) < MEANWHILE or not await ask(f"{waits}'{QUEUED}'"):
            return False
        retried, assigned = "SELECT 1 FROM rota_queue WHERE failures > 0", "SELECT 1 FROM rota_queue WHERE job_id = 0"
        if not await ask(retried) or not await ask(assigned):
            return False
        return set((await self._incarnations()).values()) <= dict(await ask(has)).keys()

    async def finish(self, release: Release) -> None:
        """Pause all jobs, and wait until nothing is left to do, or for so long that nothing more comes. The run of an
        assignment ends after its items, when one of the nodes looks for such."""
        await release.rota(self.shift.url, "job", "pause", *JOBS)
        await self.shift.until_idle()

        async def is_over() -> bool:
            await asyncio.sleep(0.1)
            return not await self.shift.witness.ask("SELECT id FROM rota_run WHERE ended_at IS NULL")

        with suppress(AssertionError):  # `wrong` names them
            await self.shift.until_asked(is_over, "all runs to end", self._closed_s)

    async def wrong(self) -> list[str]:
        """What was lost or doubled, and what is not as it should be at the end."""
        ask = self.shift.witness.ask
        items = [Item(*row) for row in await ask(_ITEMS)]
        attempts = [Attempt(*row) for row in await ask(_ATTEMPTS)]
        lines = self.shift.watcher.lines
        found = [f"run {run_id} is {state}" for run_id, state in await ask(_OTHER_RUNS)]
        found += [f"the queue has {row} left" for row in await ask("SELECT * FROM rota_queue")]
        found += await self._wrong_slots()
        numbers = [number for (number,) in await ask("SELECT number FROM rota_item WHERE number IS NOT NULL")]
        if sorted(numbers) != sorted(self._numbers):
            found.append(f"assigned were {len(self._numbers)} items, the store has {len(numbers)}")
        found += wrong_items(items, attempts, self._killed)
        found += wrong_lines(attempts, lines)
        verdict = self.shift.judged()
        found += [] if verdict.clean else [str(verdict)]
        found += [*self.shift.surprises(), *self._complaints()]
        outcomes = Counter(it.outcome for it in attempts)
        if self._killed and not outcomes["lost"]:
            found.append("void: a node that had nothing in hand was killed")
        print(f"\nn={len(items)} items, of them {len(numbers)} assigned; attempts {dict(outcomes)}; {verdict}")
        return found

    def _complaints(self) -> Iterator[str]:
        """The errors in the logs. By their words, each node was of the one release and then of the other."""
        for name, node in self.shift.nodes.items():
            yield from (f"{name}: {line}" for line in node.log.splitlines() if "Z error " in line)
            words = [node.log.count(word) for word in (" node started ", " node.started ")]
            if words != [1, 1]:
                yield f"{name} was started {words} times by the releases"

    async def _wrong_slots(self) -> Iterator[str]:
        changes: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for name, kind, at in await self.shift.witness.ask(_CHANGES):
            changes[name].append((kind, at))
        slots: dict[str, list[int]] = defaultdict(list)
        for name, slot_at in await self.shift.witness.ask(_SLOTS):
            slots[name].append(slot_at)
        print(f"\nn={sum(map(len, slots.values()))} slots of {len(slots)} jobs")
        return (it for name in JOBS for it in wrong_slots(name, slots[name], owed(changes[name])))


_ITEMS = """SELECT i.id, j.name, i.state FROM rota_item i JOIN rota_run r ON r.id = i.run_id
    LEFT JOIN rota_job j ON j.id = r.job_id ORDER BY 1"""
_ATTEMPTS = "SELECT item_id, attempt, outcome, node FROM rota_attempt ORDER BY 1, 2"
_OTHER_RUNS = "SELECT id, state FROM rota_run WHERE state <> 'succeeded' OR ended_at IS NULL"
_CHANGES = """SELECT j.name, e.kind, e.at FROM rota_event e JOIN rota_job j ON j.id = e.job_id
    WHERE e.kind IN ('job.created', 'job.paused', 'job.resumed') ORDER BY e.at"""
_SLOTS = """SELECT j.name, r.slot_at FROM rota_run r JOIN rota_job j ON j.id = r.job_id
    WHERE r.cause = 'slot' ORDER BY 1, 2"""


def owed(changes: Iterable[tuple[str, int]]) -> list[int]:
    """Every whole second in which a job was enabled: a change settles the slots up to its own instant."""
    found: list[int] = []
    since: int | None = None
    for kind, at in changes:
        if kind == "job.paused" and since is not None:
            found += range((since // SECOND + 1) * SECOND, at + 1, SECOND)
        since = None if kind == "job.paused" else at
    assert since is None, "it was never paused at the end"
    return found


def wrong_slots(name: str, found: Sequence[int], wanted: Sequence[int]) -> Iterator[str]:
    """Compare the slots of a job with those that it owed."""
    there, due = Counter(found), set(wanted)
    yield from (f"slot {at} of {name} is there {count} times" for at, count in there.items() if count > 1)
    yield from (f"slot {at} of {name} is missing" for at in sorted(due - there.keys()))
    yield from (f"slot {at} of {name} was not owed" for at in sorted(there.keys() - due))


def wrong_items(items: Sequence[Item], attempts: Sequence[Attempt], killed: set[str]) -> Iterator[str]:
    """Each item has succeeded once, in its last attempt, and those before did as they were told to. Only a node that
    was killed has lost any."""
    by_item: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_item[attempt.item].append(attempt)
    for item in items:
        own = by_item[item.id]
        failures = FAILURES if item.job == RETRIED else 0
        kept = [it for it in own if it.outcome != "lost" or it.node not in killed]
        as_told = all(it.outcome == ("failed" if it.attempt <= failures else "succeeded") for it in kept)
        succeeded = [it.attempt for it in own if it.outcome == "succeeded"]
        in_turn = [it.attempt for it in own] == list(range(1, len(own) + 1))
        if item.state != "succeeded" or not as_told or not in_turn or succeeded != [len(own)]:
            yield f"{item} ended by {own}"


def wrong_lines(attempts: Sequence[Attempt], lines: Sequence[Line]) -> Iterator[str]:
    """Compare what was executed with what the store knows of: whatever succeeded began once and came to its end once,
    and nothing else began but what failed or was lost."""
    begun = Counter((it.item, it.attempt) for it in lines if it.kind == START)
    ended = Counter((it.item, it.attempt) for it in lines if it.kind == END)
    known = {(it.item, it.attempt): it.outcome for it in attempts}
    yield from (f"attempt {it} was executed, and the store does not know it" for it in begun.keys() - known.keys())
    for key, outcome in known.items():
        most = (begun[key], ended[key])
        if most != (1, 1) and not (outcome == "lost" and max(most) <= 1):
            yield f"attempt {key}, which {outcome}, began {most[0]} times and ended {most[1]} times"
