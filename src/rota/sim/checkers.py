"""Judges: pure functions from a history to what was wrong in it. They know the promises, and nothing of the product.

Safety is judged always: slots lost, doubled, early; two live attempts at one item; caps; rates; ends of stale attempts;
claims above N. In calm, progress too: jobs without an owner, with two, handed back and forth, or fired late; loads that
are not even; limits that do not survive a crash; what schedulers should tell and do not; items that are stuck.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import ceil

from rota.model.cluster import Placement, Strategy
from rota.model.value import Value
from rota.sim.history import Attempted, Claimed, History, Survey
from rota.sim.plan import CALM_S, FaultKind, Mode, Scenario

THAW_S = 0.6
"""How long a host that stood still as a whole may run on what is no longer its own."""
FAULTS = 1
"""n: how many schedulers may die."""
SETTLE_S = 22.0
"""How long after the last fault everything has its place again: lease, margin, looks, and a session of the next."""
LATE_S = 1.5
"""How late a slot may be fired in calm."""
STUCK_S = 25.0
"""How long an item may be under way in calm."""
BACK_S = 4.0
"""For how long a job is left to whom it was handed over to: less than a session."""
SWEEP_S = 3.0
"""How old the number of schedulers may be that a claim went by."""


BEGIN_US = 1_767_225_600 * 1_000_000
"""When simulations begin, by the store's clock: 2026-01-01."""
REPLY_S = 2.6
"""How far a node's idea of the store's clock may be off: as long as a reply may take."""
STEPPED_S = 20.0
"""For how long after a jump of the store's clock starts may be dated by the clock of before: lease and rescue."""


SKEW = 1.25
"""How much larger than its share a range may become."""
HARMLESS = (FaultKind.CRASH, FaultKind.RESTART, FaultKind.STOP, FaultKind.SWAP, FaultKind.DRAIN, FaultKind.CANCEL)
"""What does not make the knowledge of a scheduler old."""


class Violation(Value, frozen=True, kw_only=True):
    """A broken promise."""

    kind: str
    at_s: float
    text: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.at_s:.3f} s: {self.text}"


def check(history: History) -> list[Violation]:
    """All that was wrong, earliest first."""
    judges = SAFETY if history.scenario.mode is Mode.SAFETY else (*SAFETY, *LIVENESS)
    return sorted((it for judge in judges for it in judge(history)), key=lambda it: (it.at_s, it.kind, it.text))


def slots(history: History) -> Iterator[Violation]:
    """Every slot up to the last one fired has one row, written when it was due or later; in calm every slot has."""
    ends_us = history.end_us - round(LATE_S * 1e6) if history.scenario.mode is Mode.LIVENESS else 0
    for job_id, job in enumerate(history.scenario.jobs, start=1):
        every_us = job.every_s * 1_000_000
        rows = [it for it in history.fired if it.job_id == job_id]
        seen = Counter(it.slot_us + n * every_us for it in rows for n in range(it.slots))
        for it in rows:
            if it.slot_us + (it.slots - 1) * every_us > it.store_us:
                yield Violation(kind="early", at_s=it.at_s, text=f"job {job_id}, slot {it.slot_us}")
        for slot_us, count in seen.items():
            if count > 1:
                at_s = max(it.at_s for it in rows if it.slot_us <= slot_us)
                yield Violation(kind="doubled", at_s=at_s, text=f"job {job_id}, slot {slot_us}: {count} rows")
            if slot_us % every_us:
                yield Violation(kind="strange", at_s=0.0, text=f"job {job_id}: {slot_us} is no slot")
        last_us = max([*seen, ends_us])
        periods = history.defined_us.get(job_id, BEGIN_US) // every_us  # a slot is a whole number of them since 1970
        for slot_us in range((periods + 1) * every_us, last_us + 1, every_us):
            if slot_us not in seen:
                yield Violation(kind="lost", at_s=history.end_s, text=f"job {job_id}, slot {slot_us}")


def two_attempts(history: History) -> Iterator[Violation]:
    """An item has one live attempt at a time, whole hosts that stood still excepted."""
    by_item: dict[int, list[tuple[float, float, Attempted]]] = defaultdict(list)
    for it in history.attempts:
        for start_s, end_s in _live(history, it):
            by_item[it.item_id].append((start_s, end_s, it))
    for item_id, spans in by_item.items():
        spans.sort(key=lambda span: span[:2])
        for (_, end_s, one), (start_s, _, other) in pairwise(spans):
            if start_s < end_s and one is not other:
                text = f"item {item_id}: attempt {one.attempt} on {one.host} and {other.attempt} on {other.host}"
                yield Violation(kind="two_attempts", at_s=start_s, text=f"{text}, for {end_s - start_s:.2f} s or less")


def caps(history: History) -> Iterator[Violation]:
    """Never more than a cap execute at an instant."""
    for name, cap in history.scenario.caps.items():
        points: list[tuple[float, int]] = []
        for it in history.attempts:
            if name in ("global", it.tenant):
                points += [p for start_s, end_s in _live(history, it) for p in ((start_s, 1), (end_s, -1))]
        running = 0
        for at_s, step in sorted(points):
            running += step
            if step > 0 and running > cap:
                yield Violation(kind="cap", at_s=at_s, text=f"{running} of {name} execute, the cap is {cap}")


def rates(history: History) -> Iterator[Violation]:
    """Never more starts in a period than a rate allows, by the store's clock. A node that stood still as a whole may
    begin, when it goes on, what was its own before; after a jump of the clock nobody knows when a start was."""
    steps = [(it.at_s, it.much) for it in history.scenario.faults if it.kind is FaultKind.STEP_STORE]
    thawed = [(it.host, it.at_s, it.until_s + THAW_S) for it in history.frozen]
    for tenant, (most, period_s) in history.scenario.rates.items():
        starts = sorted(
            it.at_s
            for it in history.attempts
            if it.tenant == tenant and not any(it.host == host and a <= it.at_s <= b for host, a, b in thawed)
        )
        for first_s, last_s in zip(starts, starts[most:], strict=False):
            stepped = any(first_s - STEPPED_S <= at_s <= last_s for at_s, _ in steps)
            if last_s - first_s < period_s - REPLY_S and not stepped:
                text = f"{most + 1} of {tenant} start in {last_s - first_s:.2f} s, the rate is {most} in {period_s:g} s"
                yield Violation(kind="rate", at_s=last_s, text=text)


def stale(history: History) -> Iterator[Violation]:
    """Only the newest attempt's end counts, and tokens rise."""
    newest: dict[int, int] = {}
    for noted in history.items:
        last_given = newest.get(noted.item_id, 0)
        if noted.outcome and noted.attempt < last_given:
            text = f"item {noted.item_id}: the end of attempt {noted.attempt} counted after {last_given} was given"
            yield Violation(kind="stale", at_s=noted.at_s, text=text)
        newest[noted.item_id] = max(last_given, noted.attempt)
    tokens: dict[int, Attempted] = {}
    for it in sorted(history.attempts, key=lambda it: (it.item_id, it.attempt)):
        last = tokens.get(it.item_id)
        if last is not None and last.token >= it.token:
            yield Violation(kind="stale", at_s=it.at_s, text=f"item {it.item_id}: token {it.token} came before")
        tokens[it.item_id] = it


def above_limit(history: History) -> Iterator[Violation]:
    """Nobody who can see the others claims a job when it has N."""
    if history.scenario.placement is not Placement.CLAIM:
        return
    jobs, held, lives = len(history.scenario.jobs), defaultdict[str, set[str]](set), _Lives()
    for it in history.entries:
        lives.note(it)
        if not it.key.startswith("jobs/"):
            continue
        if it.gone:
            held[it.session].discard(it.key)
            continue
        held[it.session].add(it.key)
        limit = 1 + jobs // max(lives.fewest(it.at_s) - _drained(history, it.at_s) - FAULTS, 1)
        if len(held[it.session]) > limit and not _is_hampered(history, it.value, it.at_s):
            text = f"{it.value} claims {it.key} and has {len(held[it.session])}, N is {limit}"
            yield Violation(kind="above_limit", at_s=it.at_s, text=text)


def owners(history: History) -> Iterator[Violation]:
    """In calm every job has one owner (with beats: at most one)."""
    for seen in _settled(history):
        for job_id, names in seen.owners.items():
            if len(names) > 1:
                yield Violation(kind="two_owners", at_s=seen.at_s, text=f"job {job_id}: {', '.join(names)}")
            if not names and history.scenario.placement is not Placement.BEAT:
                yield Violation(kind="unowned", at_s=seen.at_s, text=f"job {job_id}")


def late(history: History) -> Iterator[Violation]:
    """In calm every slot is fired at once."""
    for it in history.fired:
        late_s = (it.store_us - it.slot_us) / 1e6
        if it.at_s - late_s > CALM_S + SETTLE_S and late_s > LATE_S:
            yield Violation(kind="late", at_s=it.at_s, text=f"job {it.job_id}, slot {it.slot_us}: {late_s:.2f} s")


def even(history: History) -> Iterator[Violation]:
    """After calm loads differ by at most one, where they are evened out. New jobs go to the last range, which is cut
    anew when it has a quarter more than its share."""
    scenario, last = history.scenario, history.seen[-1] if history.seen else None
    if last is None or not _is_evened(scenario):
        return
    counts = Counter(name for names in last.owners.values() for name in names)
    loads = [counts[name] for name in last.up if name not in last.drained]
    if scenario.placement is Placement.SCOPE and any(job.from_s for job in scenario.jobs):
        most = SKEW * ceil(len(scenario.jobs) / max(len(loads), 1)) + 1
    else:
        most = min(loads, default=0) + 1
    if loads and max(loads) > most:
        yield Violation(kind="uneven", at_s=last.at_s, text=f"{dict(counts)}")


def survivable(history: History) -> Iterator[Violation]:
    """In calm, if any n schedulers died, the others could hold all jobs by the limits that they tell."""
    if history.scenario.placement is not Placement.CLAIM:
        return
    for seen in _settled(history):
        limits = sorted(limit for name, (_, limit) in seen.told.items() if name not in seen.drained)
        left = sum(limits[: max(len(limits) - FAULTS, 1)])
        if left < len(history.scenario.jobs):
            text = f"limits {limits} leave room for {left} of {len(history.scenario.jobs)} jobs after {FAULTS} crash"
            yield Violation(kind="not_survivable", at_s=seen.at_s, text=text)


def untold(history: History) -> Iterator[Violation]:
    """In calm the coordinator says of every scheduler what its configuration says."""
    for seen in _settled(history):
        for text in seen.untold:
            yield Violation(kind="untold", at_s=seen.at_s, text=text)


def drained(history: History) -> Iterator[Violation]:
    """In calm a node on the offline list keeps no job at two looks but those that run (A0.9), and begins nothing."""
    for before, seen in pairwise(history.seen):
        for job_id, names in seen.owners.items() if before.at_s >= CALM_S + SETTLE_S else ():
            keeps = set(names) & set(before.owners[job_id]) & set(seen.drained) & set(before.drained)
            if keeps and job_id not in {*before.busy, *seen.busy}:
                yield Violation(kind="drained", at_s=seen.at_s, text=f"job {job_id}: {', '.join(names)}")
    for it in history.attempts:
        if any(
            window.host == it.host and window.at_s + SETTLE_S < it.at_s < window.until_s for window in history.drained
        ):
            text = f"item {it.item_id} begins on {it.host}"
            yield Violation(kind="drained", at_s=it.at_s, text=text)


def bounced(history: History) -> Iterator[Violation]:
    """Nobody takes back at once what it has just given away, unless somebody came or went, or was put on the offline
    list or taken off it, meanwhile or while it decided to give."""
    released: dict[tuple[str, str], float] = {}
    changed = [at_s for window in history.drained for at_s in (window.at_s, window.until_s)]
    changed += [it.at_s for it in history.entries if it.key.startswith("live/")]
    for it in history.entries:
        if not it.key.startswith("jobs/"):
            continue
        if it.gone:
            released[it.key, it.session] = it.at_s
            continue
        since_s = released.get((it.key, it.session), -1e9)
        if it.at_s - since_s < BACK_S and not any(since_s - SWEEP_S <= at_s <= it.at_s for at_s in changed):
            yield Violation(kind="bounced", at_s=it.at_s, text=f"{it.value} takes back {it.key}")


def stuck(history: History) -> Iterator[Violation]:
    """After calm no item is left that was there long ago."""
    longest_s = 1.5 * max(job.work_s for job in history.scenario.jobs)
    for it in history.stuck:
        work_s = longest_s if it.state == "running" else 0.0
        if history.end_s - it.since_s > STUCK_S + work_s:
            text = f"item {it.item_id} is {it.state} since {it.since_s:.1f} s"
            yield Violation(kind="stuck", at_s=history.end_s, text=text)


Judge = Callable[[History], Iterator[Violation]]
SAFETY: Sequence[Judge] = (slots, two_attempts, caps, rates, stale, above_limit, bounced)
LIVENESS: Sequence[Judge] = (owners, late, even, survivable, untold, drained, stuck)


def _settled(history: History) -> list[Survey]:
    """The looks at everybody from when everything had its place again."""
    return [it for it in history.seen if it.at_s >= CALM_S + SETTLE_S]


class _Lives:
    """How many schedulers took part, at any time until now."""

    def __init__(self) -> None:
        self._changes: list[tuple[float, int]] = [(0.0, 0)]

    def note(self, it: Claimed) -> None:
        if it.key.startswith("live/"):
            self._changes.append((it.at_s, self._changes[-1][1] + (-1 if it.gone else 1)))

    def fewest(self, at_s: float) -> int:
        """The fewest of the last seconds."""
        recent = [count for since_s, count in self._changes if since_s >= at_s - SWEEP_S]
        before = [count for since_s, count in self._changes if since_s < at_s - SWEEP_S]
        return min([*recent, *before[-1:]])


def _is_evened(scenario: Scenario) -> bool:
    if scenario.placement is Placement.SCOPE:
        return scenario.strategy is Strategy.BALANCED
    return scenario.placement is Placement.CLAIM and scenario.automatic


def _live(history: History, it: Attempted) -> list[tuple[float, float]]:
    """When an attempt ran, without the times in which its whole host stood still or had just gone on."""
    spans = [(it.at_s, history.end_s if it.end_s is None else it.end_s)]
    for window in history.frozen:
        if window.host == it.host:
            thawed_s = window.until_s + THAW_S
            cut = [((a, min(b, window.at_s)), (max(a, thawed_s), b)) for a, b in spans]
            spans = [span for pair in cut for span in pair if span[0] < span[1]]
    return spans


def _is_hampered(history: History, name: str, at_s: float) -> bool:
    """Whether what a scheduler knew may have been old."""
    faults = [it for it in history.scenario.faults if it.at_s <= at_s <= it.until_s + SWEEP_S]
    return any(it.kind not in HARMLESS and (it.node < 0 or name == f"node-{it.node}") for it in faults)


def _drained(history: History, at_s: float) -> int:
    """How many schedulers were on the offline list, or had been shortly before."""
    return len({it.host for it in history.drained if it.at_s <= at_s <= it.until_s + SWEEP_S})
