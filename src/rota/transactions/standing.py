"""Where a run stands, how much there is of each quota, and who is there: worked out from rows, once for every store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

from rota.model import tables
from rota.model.node import Members, Node, NodeState
from rota.model.records import from_us, item_of, joined_of, limit_of, queued_of, run_of
from rota.model.run import Item, Run
from rota.model.standing import ItemStanding, QuotaCount, Standing
from rota.model.states import ItemState, RunState
from rota.model.tables import RunRow
from rota.model.work import Lane, quota_limit
from rota.transactions.assign import derived, is_open
from rota.transactions.lanes import lanes_by_id
from rota.transactions.limits import all_limits
from rota.transactions.rows import FoundNode
from rota.transactions.tx import Tx

QUOTA = "quota:"
_STATES = frozenset(str(state) for state in NodeState)


def runs_of(tx: Tx, run_ids: Sequence[int], found: Sequence[RunRow] | None = None) -> list[Run]:
    """Runs by id, or of rows. The run of an assignment is closed some time after its last item has ended; until then
    its state is as its items say."""
    rows = tx.rows.read(tables.RUN, run_ids) if found is None else found
    runs = tx.readings.all(rows, run_of)
    loose = [run.id for run in runs if is_open(run)]
    return derived(runs, tx.ask.tally(loose) if loose else ())


def items_of(tx: Tx, run_id: int) -> list[Item]:
    """The items of a run, by task and index, with their live states."""
    return tx.readings.all([(*it.item, it.live) for it in tx.ask.live_items([run_id])], item_of)


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
        joined=joined_of(row.name, row.joined),
        state=state,
        busy=0.0 if lease is None else lease.busy / 100,
        joined_at=from_us(row.joined_at),
        left_at=from_us(row.left_at),
        lease_until=None if lease is None else from_us(lease.until_at),
        beat=0 if lease is None else lease.beat,
    )


def statistics(tx: Tx) -> tuple[QuotaCount, ...]:
    """How many items are ready and executing. Quotas that were set are there even if nothing of them is live."""
    limits = tx.readings.all([row for row in tx.rows.all(tables.LIMIT) if row.is_set], limit_of)
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
        for row, queued in tx.readings.pairs(mine, queued_of)
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
