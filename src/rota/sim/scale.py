"""Scale on paper, made runnable: what a join, a leave and a crash cost under each placement, by the product's own
functions, beside plain rendezvous hashing.

Ranges are compared by their ends, never job by job. What is decided by a hash is asked for a sample of the jobs and
scaled up. Times and operations are estimates from the steps that each placement takes; the constants say from what.
The picture of it is an SVG by hand, so that nothing has to be installed for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from math import ceil, log10
from xml.sax.saxutils import escape

import msgspec

from rota.core.placement.beat import wait_s
from rota.core.placement.claim import limit
from rota.core.placement.scope import plan, preferred
from rota.core.placement.share import moves, targets
from rota.model.cluster import Peer, ScopePlan, Strategy
from rota.model.value import Value
from rota.sim.loop import dice

SAMPLE = 2000
"""How many jobs are hashed."""
JOINERS = 100
"""How many schedulers are let in, one at a time, for the mean of what a join moves by hash."""
SESSION_S = 4.0
"""How long it takes until a crash is noticed."""
ROUND_TRIP_S = 0.002
RATE = 10_000
"""Operations of a coordinator in a second."""
FAULTS = 1
WIDTH, LEFT, TOP, ROW, BAR = 760, 170, 70, 46, 14
FONT = 'font-family="sans-serif" font-size="12"'
SERIES = (("join", "#4477aa"), ("leave", "#66ccaa"), ("crash", "#cc6677"))


class Moved(Value, frozen=True, kw_only=True):
    """What one placement costs: jobs that change their owner, how unequal the parts are after a crash (largest by
    mean), and until the jobs of a crashed scheduler are owned again."""

    placement: str
    join: int
    leave: int
    crash: int
    imbalance: float
    reown_s: float
    operations: int


def compared(nodes: int, jobs: int) -> tuple[Moved, ...]:
    """Every placement, and plain hashing, for so many schedulers and jobs."""
    joined, left, imbalance = _hashed(nodes, jobs)
    ranges = [_scoped(nodes, jobs, strategy) for strategy in (Strategy.SCOPE, Strategy.BALANCED)]
    operations, reown_s = _planning(nodes)
    stable = Moved(
        placement="scope, stable",
        join=joined,
        leave=left,
        crash=left,
        imbalance=imbalance,
        reown_s=reown_s,
        operations=operations,
    )
    found = {"placement": "rendezvous hashing", "reown_s": _after(nodes - 1, 1), "operations": nodes - 1}
    plain = msgspec.structs.replace(stable, **found)
    return _claimed(nodes, jobs), *ranges, stable, _beaten(nodes, jobs), plain


def _claimed(nodes: int, jobs: int) -> Moved:
    """Who joins is handed its share; what one had is taken by those who have less than theirs. Every scheduler sweeps
    twice: it reads members, jobs, hand-overs and the offline list, claims, and tells its balance."""
    weights = dict.fromkeys(_names(nodes + 1), 1.0)
    even = {name: jobs // nodes + (n < jobs % nodes) for n, name in enumerate(_names(nodes))}
    before = targets(even, dict.fromkeys(even, 1.0))
    joined = moves({**before, _names(nodes + 1)[-1]: 0}, weights)
    gone, *others = before
    orphans = before[gone]
    after = {name: before[name] for name in others}
    after[others[0]] += orphans
    share = max(targets(after, dict.fromkeys(others, 1.0)).values())
    assert share <= limit(jobs, nodes - 1, FAULTS), "the limit leaves room for the share"
    operations = 2 * 6 * (nodes - 1)
    return Moved(
        placement="claim",
        join=sum(move.jobs for move in joined),
        leave=orphans,
        crash=orphans,
        imbalance=_ratio([share], jobs, nodes - 1),
        reown_s=_after(operations, 12),
        operations=operations,
    )


def _scoped(nodes: int, jobs: int, strategy: Strategy) -> Moved:
    """The scheduler in the middle of the addresses comes or goes: about the mean of all places."""
    names = _names(nodes)
    middle = nodes // 2
    before = _plan(names, jobs, strategy)
    joined = _plan([*names[:middle], f"{names[middle]}-next", *names[middle:]], jobs, strategy)
    left = _plan([*names[:middle], *names[middle + 1 :]], jobs, strategy)
    operations, reown_s = _planning(nodes)
    return Moved(
        placement=f"scope, {strategy}",
        join=_differing(before, joined, jobs),
        leave=_differing(before, left, jobs),
        crash=_differing(before, left, jobs),
        imbalance=_ratio(_sizes(left, jobs), jobs, nodes - 1),
        reown_s=reown_s,
        operations=operations,
    )


def _beaten(nodes: int, jobs: int) -> Moved:
    """Nobody owns anything. One crash in so many hits the one that has the beat, and then all jobs of the beat move: on
    average its share. All others try for its lock; the last of them after the longest wait."""
    return Moved(
        placement="beat",
        join=0,
        leave=0,
        crash=ceil(jobs / nodes),
        imbalance=float(nodes),
        reown_s=round(_after(nodes - 1, 1) + wait_s(100.0, 1.0), 2),
        operations=nodes - 1,
    )


def _hashed(nodes: int, jobs: int) -> tuple[int, int, float]:
    """Moved by a join, moved by a leave, and imbalance after a crash, of rendezvous hashing. With few jobs all are
    hashed, among those that are left; the imbalance of many is that of as many throws."""
    names = _names(nodes)
    sample = range(1, min(SAMPLE, jobs) + 1)
    weights = dict.fromkeys(names, 1.0)
    owners = [preferred(job_id, weights) for job_id in sample]
    share = len(sample) / jobs
    joined = _taken(sample, owners) / JOINERS
    if share < 1:
        loads = list(Counter(dice(nodes, "throws").choices(range(nodes - 1), k=jobs)).values())
    else:
        others = dict.fromkeys(names[1:], 1.0)
        loads = list(Counter(preferred(job_id, others) for job_id in sample).values())
    left = len(owners) / nodes  # the mean of all, for the sample has only a few of each
    return round(joined / share), round(left / share), _ratio(loads, jobs, nodes - 1)


def _taken(sample: Sequence[int], owners: Sequence[str | None]) -> int:
    """How many jobs some joiners would take from their owners, each by itself: one alone takes too few to tell."""
    return sum(
        preferred(job_id, {str(owner): 1.0, joiner: 1.0}) == joiner
        for joiner in (f"joiner-{n}" for n in range(JOINERS))
        for job_id, owner in zip(sample, owners, strict=True)
    )


def _planning(nodes: int) -> tuple[int, float]:
    """Operations and time of a new plan: the leader reads and writes it; everybody reads members, leader and plan,
    tells that it has read it, and looks once more until all have."""
    operations = 8 + 7 * (nodes - 1)
    return operations, _after(operations, 12)


def _after(operations: int, steps: int) -> float:
    """When it is done: noticed after a session, then so many steps one after the other, or as fast as the coordinator
    can."""
    return round(SESSION_S + max(steps * ROUND_TRIP_S, operations / RATE), 2)


def _names(nodes: int) -> list[str]:
    return [f"node-{n:05}" for n in range(nodes)]


def _plan(names: Sequence[str], jobs: int, strategy: Strategy) -> ScopePlan:
    peers = [Peer(name=name, incarnation="", address=name) for name in names]
    return plan(peers, range(1, jobs + 1), strategy, 1)


def _differing(one: ScopePlan, other: ScopePlan, jobs: int) -> int:
    """How many jobs have another owner in the other plan: between two cuts of either all are alike."""
    cuts = sorted({part.first for cut in (one, other) for part in cut.parts if part.first <= jobs})
    firsts = [[part.first for part in cut.parts] for cut in (one, other)]
    moved = 0
    for start, end in zip(cuts, [*cuts[1:], jobs + 1], strict=True):
        owners = {
            cut.parts[bisect_right(first, start) - 1].name for cut, first in zip((one, other), firsts, strict=True)
        }
        moved += (end - start) * (len(owners) > 1)
    return moved


def _sizes(cut: ScopePlan, jobs: int) -> list[int]:
    return [(jobs if part.last is None else part.last) - part.first + 1 for part in cut.parts]


def _ratio(sizes: Sequence[int], jobs: int, nodes: int) -> float:
    return round(max(sizes) / (jobs / nodes), 4)


def picture(found: Sequence[Moved], nodes: int, jobs: int) -> str:
    """Jobs moved by a join, a leave and a crash, on a logarithmic scale: one group of bars for each placement."""
    height = TOP + ROW * len(found) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {FONT}>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="24" font-size="15">Jobs that move: {jobs:,} jobs on {nodes:,} schedulers</text>',
        *_legend(),
        *_grid(jobs, height),
    ]
    for place, it in enumerate(found):
        parts += _group(it, TOP + ROW * place, jobs)
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> list[str]:
    lines = []
    for place, (name, colour) in enumerate(SERIES):
        x = LEFT + 90 * place
        lines.append(f'<rect x="{x}" y="36" width="12" height="12" fill="{colour}"/>')
        lines.append(f'<text x="{x + 18}" y="46">{name}</text>')
    return lines


def _grid(jobs: int, height: int) -> list[str]:
    lines = []
    for power in range(int(log10(max(jobs, 1))) + 1):
        x = LEFT + _length(10**power, jobs)
        lines.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 30}" stroke="#dddddd"/>')
        lines.append(f'<text x="{x:.1f}" y="{height - 14}" text-anchor="middle" fill="#666666">{10**power:,}</text>')
    return lines


def _group(it: Moved, y: int, jobs: int) -> list[str]:
    lines = [f'<text x="{LEFT - 10}" y="{y + 25}" text-anchor="end">{escape(it.placement)}</text>']
    for place, (name, colour) in enumerate(SERIES):
        value, top = getattr(it, name), y + place * (BAR - 1)
        width = _length(value, jobs)
        lines.append(f'<rect x="{LEFT}" y="{top}" width="{width:.1f}" height="{BAR - 3}" fill="{colour}"/>')
        lines.append(f'<text x="{LEFT + width + 5:.1f}" y="{top + 10}" font-size="10">{value:,}</text>')
    return lines


def _length(value: float, jobs: int) -> float:
    """From 1 to all jobs over the whole width; less than 1 has no length."""
    room = WIDTH - LEFT - 70
    return room * log10(value) / log10(max(jobs, 10)) if value > 1 else 0.0
