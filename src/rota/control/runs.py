"""Runs: list, show, cancel, run again, and say why they wait."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from rota.control.logs import LogPiece
from rota.control.survey import Family
from rota.control.values import Shape, cause, fields_of, iso, lateness
from rota.core.advance import Advance
from rota.core.explain import Reason, explain, failures
from rota.core.start import RERUNS_MAX, Known, Rerun, rerun_key
from rota.errors import NotFound, Refused
from rota.model.job import Definition, JobName
from rota.model.node import Node
from rota.model.plan import JobFilter, RunFilter
from rota.model.run import Event, Item, Run
from rota.model.standing import Cancelled
from rota.model.states import Cause, JobState, RunState
from rota.model.work import AttemptRecord, Queued
from rota.ports import Store
from rota.transactions.cancel import cancel
from rota.transactions.change import change

LIVE_MAX = 10_000
PAGES_MAX = 50
PAGE_MIN = 1000
"""How many runs of how many pages are read for those that are asked for by state: what waits for a seat is stored as
running."""


class RunDetail(NamedTuple):
    """A run, its items, what is live of them (by id), the attempts that are over, the nodes that have some, and its
    history."""

    job: JobName | None
    """None: an assignment."""
    run: Run
    items: tuple[Item, ...]
    history: tuple[Event, ...]
    live: dict[int, Queued]
    attempts: tuple[AttemptRecord, ...]
    nodes: dict[int, Node]
    now: datetime

    def state_of(self, item: Item) -> str:
        """Return the live state of an item, or the one that is kept of it."""
        live = self.live.get(item.id)
        return str(item.state if live is None else live.state)

    def node_of(self, item: Item) -> str | None:
        """Return the name of the node where an item is, or where its last attempt was."""
        live = self.live.get(item.id)
        if live is not None:
            node = self.nodes.get(live.node_id or 0)
            return None if node is None else node.joined.name
        return next((it.node for it in reversed(self.attempts) if it.item_id == item.id and it.node), None)


class Cancellation(NamedTuple):
    """The runs as they are now, and what became of their items."""

    runs: tuple[Run, ...]
    done: Cancelled


class Explained(NamedTuple):
    """Why a run waits or has failed; `now` is the store's clock."""

    run: Run
    now: datetime
    reasons: tuple[Reason, ...]


class RunControl(Family):
    async def find(self, wanted: RunFilter) -> tuple[Run, ...]:
        name = wanted.job
        if name is not None and not await self._store.named([name]):
            raise NotFound(f"there is no job {name}; see: rota job list")
        if wanted.before_id is not None:
            await self._any_run(wanted.before_id)
        told: list[Run] = []
        size = max(wanted.limit, PAGE_MIN) if wanted.states else wanted.limit
        before_id = wanted.before_id
        for _ in range(PAGES_MAX):
            stored = _stored(msgspec.structs.replace(wanted, limit=size, before_id=before_id))
            page = await self._store.runs(stored)
            told += [it for it in await as_seen(self._store, page) if not wanted.states or it.state in wanted.states]
            if len(page) < size or len(told) >= wanted.limit:
                break
            before_id = page[-1].id
        return tuple(told[: wanted.limit])

    async def detail(self, run_id: int) -> RunDetail:
        run = await self._any_run(run_id)
        items = await self._store.items(run_id)
        live = await self._live(items) if run.state.live else {}
        nodes = await self._nodes_of(live.values())
        return RunDetail(
            job=(await self.names([run])).get(run.job_id),
            run=(await as_seen(self._store, [run]))[0],
            items=items,
            history=await self._store.events(run_id=run_id),
            live=live,
            attempts=await self._store.attempts(run_id),
            nodes=nodes,
            now=await self._store.now(),
        )

    async def names(self, runs: Iterable[Run]) -> dict[int, JobName]:
        """The names of the jobs of some runs, by the jobs' ids. Assignments have no job."""
        ids = tuple({run.job_id for run in runs} - {0})
        found = await self._store.jobs(JobFilter(ids=ids, states=tuple(JobState), limit=max(len(ids), 1)))
        return {job.id: job.definition.full_name for job in found}

    async def cancel(self, run_ids: Sequence[int]) -> Cancellation:
        """Cancel what of these runs has not started; ask the rest to stop. What has ended stays as it is."""
        for run_id in run_ids:
            await self._any_run(run_id)
        done = await self._store.transact(cancel, run_ids, rule=Advance())
        return Cancellation(await as_seen(self._store, await self._store.runs_of(run_ids)), done)

    async def retry(self, run_id: int, *, same_version: bool = False) -> Run:
        """Run an ended run again, under the job's overlap policy: with its parameters and its slot, and the newest
        version of the job unless told otherwise."""
        (source,) = await as_seen(self._store, [await self._any_run(run_id)])
        name = await self._repeatable(source)
        definition = await self._definition(source) if same_version else None
        key = rerun_key(run_id, await self._reruns(name, run_id) + 1)
        rule = Rerun(source=source, key=key, definition=definition)
        done = await self._store.transact(change, [name], rule, known=[(name, key)], cause=Cause.RERUN)
        if not done.runs:
            raise NotFound(f"job {name} was deleted; apply its definition to bring it back")
        return (await as_seen(self._store, done.runs))[0]

    async def explain(self, run_id: int) -> Explained:
        """Say, for every item of a run that has not ended, what it waits for; of one that has failed, why."""
        standing = await self._store.standing(run_id)
        if standing.run is None:
            raise _no_run(run_id)
        (run,) = await as_seen(self._store, [standing.run])
        if run.state is RunState.FAILED:
            items = await self._store.items(run_id)
            attempts = await self._store.attempts(run_id)
            return Explained(run, standing.now, (*explain(standing), *failures(items, attempts)))
        return Explained(run, standing.now, explain(standing))

    async def _any_run(self, run_id: int) -> Run:
        run = await self._store.run(run_id)
        if run is None:
            raise _no_run(run_id)
        return run

    async def _live(self, items: Sequence[Item]) -> dict[int, Queued]:
        ids = [item.id for item in items if item.ended_at is None][:LIVE_MAX]
        found = await self._store.queued(item_ids=ids, limit=LIVE_MAX) if ids else ()
        return {it.item_id: it for it in found}

    async def _nodes_of(self, live: Iterable[Queued]) -> dict[int, Node]:
        wanted = {it.node_id for it in live} - {None}
        if not wanted:
            return {}
        members = await self._store.nodes(gone=True)
        return {node.id: node for node in members.nodes if node.id in wanted}

    async def _repeatable(self, source: Run) -> JobName:
        if source.state.live:
            raise Refused(
                f"run {source.id} has not ended: it is {source.state}; cancel it first: rota run cancel {source.id}"
            )
        if source.called:
            raise Refused(f"run {source.id} is a call of {source.called}; call it again: {source.called}.delay(...)")
        if source.job_id == 0:
            raise Refused(
                f"run {source.id} is an assignment, which is not run again as a whole; assign what is left of it anew, "
                "under new numbers"
            )
        name = (await self.names([source])).get(source.job_id)
        if name is None:
            raise NotFound(f"the job of run {source.id} is gone")
        return name

    async def _definition(self, run: Run) -> Definition:
        wanted = (run.job_id, run.version)
        found = await self._store.definitions([wanted])
        return found[wanted]

    async def _reruns(self, name: JobName, run_id: int) -> int:
        """Return how often a run was repeated. It is part of the key, so that a repeated request finds its run."""
        keys = [(name, rerun_key(run_id, number)) for number in range(1, RERUNS_MAX + 1)]
        seen = await self._store.transact(change, [name], Known(), known=keys, cause=Cause.RERUN)
        if len(seen.runs) >= RERUNS_MAX:
            raise Refused(f"run {run_id} was run again {RERUNS_MAX} times; run one of those again instead")
        return len(seen.runs)


async def as_seen(store: Store, runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return runs as people see them: a running one of which no item has started is shown as waiting."""
    ids = [run.id for run in runs if run.state is RunState.RUNNING]
    waiting = await store.unstarted(ids) if ids else frozenset()
    return tuple(msgspec.structs.replace(run, state=RunState.WAITING) if run.id in waiting else run for run in runs)


def _stored(wanted: RunFilter) -> RunFilter:
    """Return the filter for the store, where a run that waits for a seat is stored as running."""
    states = wanted.states
    if RunState.WAITING in states and RunState.RUNNING not in states:
        states = (*states, RunState.RUNNING)
    return msgspec.structs.replace(wanted, states=states)


def _no_run(run_id: int) -> NotFound:
    return NotFound(f"there is no run {run_id}; see: rota run list")


LIVE = ("attempt", "assigned_at", "started_at", "expires_at", "cancel_at")
ATTEMPT = "item_id attempt outcome node round assigned_at started_at ended_at code message log_bytes".split()


def run_shape(run: Run, job: JobName | None) -> Shape:
    """A run; that of a call has the name of the task, that of an assignment none."""
    tenant = job.tenant if job is not None else None if run.work is None else run.work.tenant
    return {
        "id": run.id,
        "job": run.called or None if job is None else str(job),
        "job_id": run.job_id,
        "tenant": tenant,
        "version": run.version,
        "cause": cause(run),
        **fields_of(run, "key", "state", "reason", "slot_at", "last_slot_at", "slots", "due_at", "created_at"),
        "lateness_s": lateness(run),
        **fields_of(run, "ended_at", "cancel_at", "params"),
    }


def run_detail_shape(detail: RunDetail) -> Shape:
    items = [item_shape(it, detail.live.get(it.id), detail.node_of(it)) for it in detail.items]
    return {
        **run_shape(detail.run, detail.job),
        "items": items,
        "attempts": [fields_of(it, *ATTEMPT) for it in detail.attempts],
        "history": [event_shape(it) for it in detail.history],
    }


def item_shape(item: Item, live: Queued | None = None, node: str | None = None) -> Shape:
    """An item: as it is kept, and what is live of it."""
    return {
        **fields_of(item, "id", "task", "index"),
        **fields_of(item if live is None else live, "state", "not_before_at"),
        **fields_of(item, "start_by_at", "number"),
        "info": None if item.info is None else json.loads(item.info),
        "node": node,
        **(dict.fromkeys(LIVE) if live is None else fields_of(live, *LIVE)),
        "ended_at": iso(item.ended_at),
        "result": item.value,
        **fields_of(item, "message", "traceback"),
    }


def event_shape(event: Event) -> Shape:
    return fields_of(event, "id", "at", "kind", "actor", "item_id", "data")


def cancelled_shape(cancelled: Cancellation, names: Mapping[int, JobName]) -> Shape:
    """The runs that were cancelled, and how many of their items ended at once or were asked to stop."""
    return {
        "runs": [run_shape(run, names.get(run.job_id)) for run in cancelled.runs],
        "items_cancelled": cancelled.done.ended,
        "items_asked_to_stop": cancelled.done.asked,
    }


def explained_shape(told: Explained) -> Shape:
    return {"run": told.run.id, "state": str(told.run.state), "reasons": [reason_shape(it) for it in told.reasons]}


def reason_shape(it: Reason) -> Shape:
    return {
        "item_id": it.item_id,
        "task": it.task or None,
        "index": it.index if it.item_id is not None else None,
        "number": it.number,
        "why": str(it.why),
        "text": it.text,
        "until_at": iso(it.until_at),
    }


def log_shape(piece: LogPiece) -> Shape:
    """A piece of output: as `text`, or as `base64` if it is not valid UTF-8."""
    shape: Shape = {"item_id": piece.item.id, "attempt": piece.attempt, "offset": piece.offset}
    try:
        shape["text"] = piece.data.decode()
    except UnicodeDecodeError:
        shape["base64"] = base64.b64encode(piece.data).decode()
    return {**shape, "note": piece.note or None, "why": piece.why or None}
