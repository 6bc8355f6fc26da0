"""Small factories that build the world of a test through the ports, never behind their back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from rota.model.job import Definition, Job, Misfire, MisfirePolicy, Overlap, OverlapPolicy, Task
from rota.model.plan import Facts, NewJob, Plan
from rota.model.trigger import Cron, Every, Instant, Manual, Rule, Schedule
from rota.model.value import Value, digest
from rota.ports import Store

_numbers = count(1)

YEARLY = Cron(expression="0 0 1 1 *")
EVERY_SECOND = Every(every_s=1)
MANUAL = Manual()
FORBID = Overlap(policy=OverlapPolicy.FORBID)
REPLACE = Overlap(policy=OverlapPolicy.REPLACE)
SKIP = Misfire(policy=MisfirePolicy.SKIP)


def allow(live_max: int = 1000) -> Overlap:
    return Overlap(policy=OverlapPolicy.ALLOW, live_max=live_max)


def queue(queue_max: int = 10) -> Overlap:
    return Overlap(policy=OverlapPolicy.QUEUE, queue_max=queue_max)


def a_definition(
    name: str | None = None, *, rule: Rule | None = None, schedule: dict[str, Any] | None = None, **fields: Any
) -> Definition:
    """A definition that is due once a year unless told otherwise, so that a test sees only the slots that it made."""
    return Definition(
        name=name or f"job-{next(_numbers)}",
        schedule=Schedule(rule=rule or YEARLY, **(schedule or {})),
        **{"tasks": (Task(name="main", runner="shell", config={"argv": ["true"]}),), **fields},
    )


def cron(expression: str, zone: str = "UTC") -> Rule:
    return Cron(expression=expression, zone=zone)


class Put(Value, frozen=True, kw_only=True):
    """Create jobs whose first instant is given instead of computed: for example one that lies in the past."""

    definitions: tuple[Definition, ...]
    first: Instant | None

    def keys(self, jobs: Sequence[Job]) -> Iterable[str]:
        return ()

    def decide(self, facts: Facts) -> Plan:
        assert not facts.jobs, "put makes new jobs"
        return Plan(
            new_jobs=tuple(NewJob(definition=it, digest=digest(it), next=self.first) for it in self.definitions)
        )


async def a_due_job(store: Store, *, late_s: float = 0.5, **fields: Any) -> Job:
    """A stored job whose first slot was due `late_s` ago, on a whole second."""
    (job,) = await due_jobs(store, 1, late_s=late_s, **fields)
    return job


async def due_jobs(store: Store, count_: int, *, late_s: float = 0.5, **fields: Any) -> list[Job]:
    slot = (await store.now() - timedelta(seconds=late_s)).replace(microsecond=0)
    definitions = tuple(a_definition(**fields) for _ in range(count_))
    await put(store, definitions, slot)
    return [await stored(store, it) for it in definitions]


async def put(store: Store, definitions: Sequence[Definition], slot: datetime | None) -> None:
    first = None if slot is None else Instant(slot_at=slot, due_at=slot)
    await store.change([it.full_name for it in definitions], Put(definitions=tuple(definitions), first=first))


async def stored(store: Store, definition: Definition) -> Job:
    (job,) = await store.named([definition.full_name])
    return job
