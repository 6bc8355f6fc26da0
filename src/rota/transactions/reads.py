"""What is read of a store outside transactions, once for all of them: rows and questions below, values above.

Nothing is locked, and each question is one statement, which sees what is committed when it is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any, TypeVar

import msgspec

from rota.model import records, tables
from rota.model.alarm import Alarm, AlarmRule, Deliveries
from rota.model.cluster import Drains, Hold, Placeable
from rota.model.dispatch import Grant, Granted, Pulse
from rota.model.job import Definition, Job, JobName
from rota.model.node import Members, Node, NodeState
from rota.model.plan import JobFilter, Pending, RunFilter, Upcoming
from rota.model.readable import reads
from rota.model.records import from_us
from rota.model.run import Event, Item, Loads, Run
from rota.model.standing import ItemStanding, QuotaCount, Standing
from rota.model.states import ItemState, RunState
from rota.model.tables import RunRow
from rota.model.value import decode
from rota.model.work import AttemptRecord, Lane, Limit, Queued, quota_limit
from rota.transactions.assign import derived, is_open
from rota.transactions.lanes import lanes_by_id
from rota.transactions.limits import all_limits
from rota.transactions.plan import PLACED
from rota.transactions.record import LAST
from rota.transactions.rows import FoundNode
from rota.transactions.tx import Transactor, Tx

T = TypeVar("T")

QUOTA = "quota:"
_STATES = frozenset(str(state) for state in NodeState)


class Reads(Transactor):
    """What may be asked of every store. A store says how questions are answered."""

    @property
    def unread(self) -> Mapping[str, str]:
        """Records that were met and that this release cannot read, and why. Lists leave them out."""
        return self.memory.readings.unread

    async def now(self) -> datetime:
        """The store's clock: the only one that decides."""
        return from_us(await self.look(lambda tx: tx.rows.now_us()))

    async def generation(self) -> int:
        """The high part of every token: rises when the store has lost the latest part of its history."""
        (row,) = await self.look(lambda tx: tx.rows.read(tables.META, ["generation"]))
        return int(row.value)

    async def raised(self) -> tuple[datetime, str] | None:
        """When the generation was raised last, and why; none if it never was."""
        found = await self.look(lambda tx: tx.rows.read(tables.META, [LAST]))
        if not found:
            return None
        at, _, why = found[0].value.partition(" ")
        return from_us(int(at)), why

    async def upcoming(self, *, within_s: float, limit: int) -> Upcoming:
        """The enabled jobs that are due by now + `within_s`, earliest first. Not locked: a hint for the caller."""
        now_us, placed, soon = await self.look(lambda tx: tx.ask.upcoming(round(within_s * 1_000_000), limit))
        pending = tuple(Pending(job_id=job_id, next_fire_at=from_us(at)) for job_id, at in soon)
        return Upcoming(now=from_us(now_us), pending=pending, placed=placed)

    async def named(self, names: Sequence[JobName]) -> tuple[Job, ...]:
        """Those of the named jobs that exist, deleted ones too, in order of their creation."""
        return tuple(
            map(records.job_of, await self.look(lambda tx: tx.rows.find(tables.JOB, "name", sorted(set(names)))))
        )

    async def jobs(self, wanted: JobFilter) -> tuple[Job, ...]:
        return await self.look(_jobs, wanted)

    async def definitions(self, versions: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], Definition]:
        """The definitions of (job, version)."""
        found = await self.look(lambda tx: tx.rows.read(tables.JOB_VERSION, sorted(set(versions))))
        read = self.memory.readings.pairs(found, records.definition_of)
        return {(row.job_id, row.version): definition for row, definition in read}

    async def placeable(self, known: int) -> Placeable:
        """The jobs that need an owner: enabled, with a trigger; only if that set has changed since revision `known`."""
        return await self.look(_placeable, known)

    async def busy_jobs(self, job_ids: Sequence[int]) -> frozenset[int]:
        """Those of the jobs that have a live run."""
        return frozenset(await self.look(lambda tx: tx.ask.live_counts(job_ids)))

    async def holds(self) -> tuple[Hold, ...]:
        """The scopes that are held, widest first."""
        return tuple(map(records.hold_of, await self.look(lambda tx: tx.rows.all(tables.HELD))))

    async def run(self, run_id: int) -> Run | None:
        found = await self.runs_of([run_id])
        return found[0] if found else None

    async def runs_of(self, run_ids: Sequence[int]) -> Sequence[Run]:
        """Runs by id, in any order."""
        return await self.look(runs_of, run_ids)

    async def runs(self, wanted: RunFilter) -> tuple[Run, ...]:
        return await self.look(_runs, wanted)

    async def live_runs(self, tenant: str, *, after_id: int = 0, limit: int = 1000) -> tuple[int, ...]:
        """The runs (ids, rising) of a tenant that have not ended: with live items, or waiting for their turn."""
        return tuple(await self.look(lambda tx: tx.ask.live_runs(tenant, after_id, limit)))

    async def unstarted(self, run_ids: Sequence[int]) -> frozenset[int]:
        """Those of the running runs of which no item was given to a node yet."""
        return frozenset(await self.look(lambda tx: tx.ask.unstarted(run_ids))) if run_ids else frozenset()

    async def forgotten(self, run_ids: Sequence[int]) -> Sequence[int]:
        """Those of the runs that were here once and were forgotten. Ids that were never given are not of this store."""
        return await self.look(_forgotten, run_ids)

    async def items(self, run_id: int) -> tuple[Item, ...]:
        """The items of a run, by task and index."""
        return tuple(await self.look(items_of, run_id))

    async def loads(self, item_ids: Sequence[int], run_ids: Sequence[int] = ()) -> Loads:
        """Items and runs by id, in any order, for execution. Their states are as they were written last: a live item's
        is in the queue, and a run of an assignment stays open for a while after its last item."""
        items, runs = await self.look(lambda tx: tx.ask.loads(item_ids, run_ids))
        read, ran = self._read(items, records.item_of), self._read(runs, records.run_of)
        unread: set[int] = set()
        if len(read) < len(items):
            known = {item.id for item in read}
            unread |= {row[1] for row in items if row[0] not in known}
        if len(ran) < len(runs):
            unread |= {row[0] for row in runs} - {run.id for run in ran}
        return Loads(read, ran, frozenset(unread))

    async def attempts(self, run_id: int) -> tuple[AttemptRecord, ...]:
        """The attempts at a run's items that are over, oldest first."""
        return self._read(await self.look(lambda tx: tx.ask.attempts_of(run_id)), records.attempt_of)

    async def events(
        self, *, run_id: int | None = None, job_id: int | None = None, limit: int = 100
    ) -> tuple[Event, ...]:
        """The newest lines of the history of a run or a job, oldest first."""
        return self._read(
            (await self.look(lambda tx: tx.ask.last_lines(run_id, job_id, limit)))[::-1], records.event_of
        )

    async def queued(
        self,
        *,
        item_ids: Sequence[int] | None = None,
        node_id: int | None = None,
        expired: bool = False,
        ahead_s: float = 0.0,
        limit: int = 1000,
    ) -> tuple[Queued, ...]:
        """Live items: by id, of a node, or those that are finished from outside and whose time is over, or will be in
        `ahead_s`."""
        ahead_us = round(ahead_s * 1_000_000) if expired else None
        rows = await self.look(lambda tx: tx.ask.queued(item_ids, node_id, ahead_us, limit=limit))
        return self._read(rows, records.queued_of)

    async def asked_to_cancel(self, item_ids: Sequence[int]) -> tuple[int, ...]:
        """Those of the live items that were asked to stop."""
        return tuple(await self.look(lambda tx: tx.ask.asked_to_cancel(item_ids)))

    async def pulse(self, node_id: int) -> Pulse:
        """Whether there is something to do."""
        return await self.look(lambda tx: tx.ask.pulse(node_id))

    async def granted(self, node_id: int, after_round: int) -> tuple[Grant, ...]:
        """What later rounds gave to a node, in their order."""
        rows = await self.look(lambda tx: tx.ask.grants(node_id, after_round))
        return self._read(rows, _grant)  # what is missing, its node gives back when it looks

    async def limits(self) -> tuple[Limit, ...]:
        """All limits that were set."""
        rows = await self.look(lambda tx: tx.rows.all(tables.LIMIT))
        return self._read([row for row in rows if row.is_set], records.limit_of)

    async def statistics(self) -> tuple[QuotaCount, ...]:
        """How many items are ready and executing, by quota."""
        return await self.look(statistics)

    async def standing(self, run_id: int) -> Standing:
        """What `explain` needs to know about a run that waits."""
        return await self.look(standing, run_id)

    async def seats_taken(self) -> Mapping[int, int]:
        """How many seats of each node (by id) are taken."""
        return await self.look(lambda tx: tx.ask.seats_taken())

    async def nodes(self, *, gone: bool = False) -> Members:
        """The nodes that are believed alive, with their leases; `gone`: all that ever joined and are still kept."""
        return await self.look(members, gone=gone)

    async def drains(self) -> Drains:
        """The offline list."""
        rows, now_us = await self.look(lambda tx: (tx.rows.all(tables.DRAINED), tx.rows.now_us()))
        return Drains(now=from_us(now_us), drains=tuple(map(records.drain_of, rows)))

    async def alarm_rules(self) -> tuple[AlarmRule, ...]:
        """Who wants to know what, by name."""
        return self._read(await self.look(lambda tx: tx.rows.all(tables.ALARM_RULE)), records.alarm_rule_of)

    async def alarms(self, *, unsorted: bool = False, open_: bool = False, limit: int = 100) -> tuple[Alarm, ...]:
        """The newest alarms first. `unsorted`: those about which no rule was asked yet; `open_`: the levels that have
        not ended; both oldest first."""
        return self._read(
            await self.look(lambda tx: tx.ask.alarms(unsorted=unsorted, open_=open_, limit=limit)), records.alarm_in
        )

    async def deliveries(self, *, pending: bool = True, limit: int = 500) -> Deliveries:
        """What is on its way: of each rule so many, the oldest. Not `pending`: the newest of all, ended or not."""
        rows, now_us = await self.look(lambda tx: (tx.ask.deliveries(limit, pending=pending), tx.rows.now_us()))
        return Deliveries(now=from_us(now_us), deliveries=self._read(rows, records.delivery_of))

    def _read(self, rows: Sequence[Any], make: Callable[[Any], T]) -> tuple[T, ...]:
        return tuple(self.memory.readings.all(rows, make))


def _jobs(tx: Tx, wanted: JobFilter) -> tuple[Job, ...]:
    """Full pages: a shorter one is the last."""
    found: list[Job] = []
    after_id = wanted.after_id
    while len(found) < wanted.limit:
        rows = tx.ask.job_page(msgspec.structs.replace(wanted, after_id=after_id))
        found += tx.readings.all(rows, records.job_of)
        if len(rows) < wanted.limit:
            break
        after_id = rows[-1].id
    return tuple(found[: wanted.limit])


def _placeable(tx: Tx, known: int) -> Placeable:
    revision = next((row.next for row in tx.rows.read(tables.COUNTER, [PLACED])), 0)
    if revision == known:
        return Placeable(revision=revision)
    return Placeable(revision=revision, jobs=tuple(row.job_id for row in tx.rows.all(tables.PLACED)))


def _runs(tx: Tx, wanted: RunFilter) -> tuple[Run, ...]:
    job_ids = None if wanted.job is None else [row.id for row in tx.rows.find(tables.JOB, "name", [wanted.job])]
    found = runs_of(tx, (), tx.ask.run_page(wanted, job_ids))
    return tuple(run for run in found if not wanted.states or run.state in wanted.states)


def _forgotten(tx: Tx, run_ids: Sequence[int]) -> list[int]:
    kept = set(tx.ask.kept_runs(run_ids))
    given = next((row.next for row in tx.rows.read(tables.COUNTER, ["run"])), 0)
    return [it for it in run_ids if it < given and it not in kept]


@reads("grant of round")
def _grant(row: Any) -> Grant:
    round_, at, data = row
    return Grant(round=round_, at_us=at, items=decode(data, tuple[Granted, ...]))


def runs_of(tx: Tx, run_ids: Sequence[int], found: Sequence[RunRow] | None = None) -> list[Run]:
    """Runs by id, or of rows. The run of an assignment is closed some time after its last item has ended; until then
    its state is as its items say."""
    rows = tx.rows.read(tables.RUN, run_ids) if found is None else found
    runs = tx.readings.all(rows, records.run_of)
    loose = [run.id for run in runs if is_open(run)]
    return derived(runs, tx.ask.tally(loose) if loose else ())


def items_of(tx: Tx, run_id: int) -> list[Item]:
    """The items of a run, by task and index, with their live states."""
    return tx.readings.all([(*it.item, it.live) for it in tx.ask.live_items([run_id])], records.item_of)


def members(tx: Tx, *, gone: bool = False) -> Members:
    """The nodes that are believed alive; `gone`: all that are still kept."""
    now_us, rows = tx.ask.members(gone=gone)
    return Members(now=from_us(now_us), nodes=tuple(sorted(map(_node_of, rows), key=lambda it: it.id)))


def _node_of(member: FoundNode) -> Node:
    row, lease, drained = member
    known = row.state in _STATES and not (row.state == NodeState.ONLINE and drained)
    state = NodeState(row.state) if known else NodeState.DRAINING  # so is one in a state that a newer release knows
    return Node(
        id=row.id,
        joined=records.joined_of(row.name, row.joined),
        state=state,
        busy=0.0 if lease is None else lease.busy / 100,
        joined_at=from_us(row.joined_at),
        left_at=from_us(row.left_at),
        lease_until=None if lease is None else from_us(lease.until_at),
        beat=0 if lease is None else lease.beat,
    )


def statistics(tx: Tx) -> tuple[QuotaCount, ...]:
    """How many items are ready and executing. Quotas that were set are there even if nothing of them is live."""
    limits = tx.readings.all([row for row in tx.rows.all(tables.LIMIT) if row.is_set], records.limit_of)
    names = [limit.name.removeprefix(QUOTA).partition("/") for limit in limits if limit.name.startswith(QUOTA)]
    counts: dict[tuple[str, str], list[int]] = {(tenant, quota): [0, 0] for tenant, _, quota in names}
    for lane, state, count in _counts(tx):
        counts.setdefault((lane.tenant, lane.quota), [0, 0])[state != ItemState.READY] += count
    return tuple(
        QuotaCount(tenant=tenant, quota=quota, ready=ready, running=running)
        for (tenant, quota), (ready, running) in sorted(counts.items())
    )


def _counts(tx: Tx) -> list[tuple[Lane, str, int]]:
    """How many live items there are, by lane and state."""
    found = tx.ask.queue_counts()
    lanes = lanes_by_id(tx, {lane_id for lane_id, _, _ in found})
    return [(lanes[lane_id], state, count) for lane_id, state, count in found if lane_id in lanes]


def standing(tx: Tx, run_id: int) -> Standing:
    """A run and all that can hold it back."""
    there = members(tx)
    run = next(iter(runs_of(tx, [run_id])), None)
    running: Counter[str] = Counter()
    for lane, state, count in _counts(tx):
        if state != ItemState.READY:
            running.update(dict.fromkeys(lane.limits, count))
    return Standing(
        now=there.now,
        run=run,
        places=tuple(_places(tx, run_id)),
        running=dict(running),
        limits=tuple(all_limits(tx)),
        nodes=there.nodes,
        seated=tx.ask.seats_taken(),
        before=() if run is None else _before(tx, run),
    )


def _places(tx: Tx, run_id: int) -> list[ItemStanding]:
    items = {item.id: item for item in items_of(tx, run_id)}
    mine = tx.rows.read(tables.QUEUE, sorted(items))
    if not mine:
        return []
    line = tx.ask.line()
    lanes = lanes_by_id(tx, {row.lane_id for row in mine} | {lane_id for _, lane_id in line})
    ahead = _ahead(line, lanes, set(items))
    return [
        ItemStanding(
            item=items[row.item_id],
            queued=queued,
            lane=lanes[row.lane_id],
            ahead=ahead.get(row.item_id, (0, 0))[0],
            ahead_in_quota=ahead.get(row.item_id, (0, 0))[1],
        )
        for row, queued in tx.readings.pairs(mine, records.queued_of)
        if row.lane_id in lanes
    ]


def _ahead(line: Sequence[tuple[int, int]], lanes: dict[int, Lane], mine: set[int]) -> dict[int, tuple[int, int]]:
    """For each of our items in line: how many come before it, and how many of those are of its quota."""
    found: dict[int, tuple[int, int]] = {}
    in_quota: Counter[str] = Counter()
    quotas = {lane_id: quota_limit(lane.tenant, lane.quota) for lane_id, lane in lanes.items()}
    for place, (item_id, lane_id) in enumerate(line):
        quota = quotas.get(lane_id, "")
        if item_id in mine:
            found[item_id] = place, in_quota[quota]
        in_quota[quota] += 1
    return found


def _before(tx: Tx, run: Run) -> tuple[int, ...]:
    """The runs that a waiting one waits for, by its overlap policy: those of its key that are live and older."""
    if run.state is not RunState.WAITING:
        return ()
    return tuple(it.id for it in takewhile(lambda it: it.id != run.id, tx.ask.named_runs([run.overlap_key])))
