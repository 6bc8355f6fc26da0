"""Small factories that build the world of a test through the ports, never behind their back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from rota.core.dispatch.board import Rounds
from rota.definitions.collect import TIMEOUT_S
from rota.definitions.folder import load_by, load_file
from rota.definitions.loaded import Loaded
from rota.model.dispatch import Granted, ItemEnd, ItemStart, Round
from rota.model.job import Definition, Job, Misfire, MisfirePolicy, Overlap, OverlapPolicy, Task
from rota.model.moment import micros
from rota.model.node import NewNode, Place
from rota.model.plan import Facts, NewJob, Plan
from rota.model.run import Run
from rota.model.trigger import Cron, Every, Instant, Manual, Rule, Schedule
from rota.model.value import Value, digest
from rota.model.work import Assignment, Attempt, ExecutionSpec, NewTask, Work
from rota.ports import Store
from rota.transactions.assign import assign
from rota.transactions.change import change
from rota.transactions.members import join
from rota.transactions.round import dispatch

_numbers = count(1)


async def load(path: str | Path, *, today: date, timeout_s: float = TIMEOUT_S) -> Loaded:
    """Load one file, or all of a folder, once."""
    return await load_by(Path(path), lambda file, _: load_file(file, today, timeout_s), timeout_s)


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
    await store.transact(change, [it.full_name for it in definitions], Put(definitions=tuple(definitions), first=first))


async def stored(store: Store, definition: Definition) -> Job:
    (job,) = await store.named([definition.full_name])
    return job


PLACE = Place(host="host", boot_id="boot", pid_namespace="pids", pid=1, pid_started=1)
LEASE_S = 60.0
HANDLER = "default/default/work"


def a_new_node(name: str | None = None, *, seats: int = 100, **fields: Any) -> NewNode:
    number = next(_numbers)
    return NewNode(
        name=name or f"node-{number}",
        incarnation=f"incarnation-{number}",
        seats=seats,
        **{"place": PLACE, "handlers": (HANDLER, "listener:acme/default/on_start"), **fields},
    )


async def a_node(store: Store, name: str | None = None, *, lease_s: float = LEASE_S, **fields: Any) -> int:
    """The id of a node that has joined."""
    return (await store.transact(join, a_new_node(name, **fields), lease_s=lease_s)).id


def an_assignment(
    count_: int = 3,
    *,
    key: str | None = None,
    numbers: Sequence[str] = (),
    start_at: datetime | None = None,
    **work: Any,
) -> Assignment:
    number = next(_numbers)
    names = numbers or [f"{number}-{n}" for n in range(count_)]
    end_at = work.pop("end_at", None)
    return Assignment(
        key=key or f"key-{number}",
        work=Work(**{"tenant": "acme", "handler": HANDLER, **work}),
        tasks=tuple(NewTask(number=name, info={"place": n}) for n, name in enumerate(names)),
        start_at=start_at,
        end_at=end_at,
    )


async def assigned(store: Store, count_: int = 3, **fields: Any) -> Run:
    return await assign(store, an_assignment(count_, **fields), quota_must_exist=False)


async def given(store: Store, node_id: int, board: Rounds | None = None, *, batch_max: int = 1000) -> list[Granted]:
    """What one round gives to all nodes, in the order of the round."""
    done = await dispatch(store, node_id, Rounds() if board is None else board, batch_max=batch_max)
    return in_order(done)


def in_order(done: Round) -> list[Granted]:
    return sorted((it for grant in done.grants.values() for it in grant.items), key=lambda it: it.position)


def an_end(granted: Granted, outcome: str = "succeeded", state: str | None = None, **fields: Any) -> ItemEnd:
    """How an attempt ended: finally, as its outcome says, unless told otherwise."""
    final = {"succeeded": "succeeded", "cancelled": "cancelled"}.get(outcome, "failed")
    return ItemEnd(
        item_id=granted.item_id,
        attempt=granted.attempt,
        run_id=granted.run_id,
        job_id=granted.job_id,
        lane_id=granted.lane_id,
        outcome=outcome,
        state=state or final,
        **{"node": "node", "failures": granted.failures, "losses": granted.losses, **fields},
    )


def a_start(
    granted: Granted, *, expires_s: float | None = None, at_us: int | None = None, given_in: int | None = None
) -> ItemStart:
    at_us = micros(datetime.now(UTC)) if at_us is None else at_us
    return ItemStart(
        item_id=granted.item_id, attempt=granted.attempt, round=given_in, started_us=at_us, expires_s=expires_s
    )


async def together(*parts: Awaitable[object]) -> None:
    """Do things at the same time, all to their end, whatever becomes of the others; then fail as the first did."""
    for done in await asyncio.gather(*parts, return_exceptions=True):
        if isinstance(done, BaseException):
            raise done


def an_attempt(item_id: int = 1, attempt: int = 1, **fields: Any) -> Attempt:
    """An attempt at an item; what belongs to its spec is given beside what is its own."""
    spec = {name: fields.pop(name) for name in ExecutionSpec.__struct_fields__ if name in fields}
    own: dict[str, Any] = {
        "token": 1,
        "run_id": 1000 + item_id,
        "job_id": 0,
        "lane_id": 0,
        "round": 0,
        "assigned_us": 0,
        "failures": 0,
        "losses": 0,
        "index": 0,
        "idempotency_key": f"key-{item_id}",
        "params": {},
    }
    basic = {"name": "default/default/job", "tenant": "default", "task": "main", "runner": "python"}
    return Attempt(item_id=item_id, attempt=attempt, spec=ExecutionSpec(**{**basic, **spec}), **{**own, **fields})
