"""What a seed stands for: the cluster, its jobs, and the faults that it meets. All of it is data: a plan can be
printed, replayed and cut down to the faults that matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from rota.model.cluster import Placement, Strategy
from rota.model.job import OverlapPolicy
from rota.model.value import Value
from rota.sim.loop import Dice, dice

SECONDS = 120.0
"""How long a simulation lasts, in virtual time."""
CALM_S = 80.0
"""When the faults of a liveness plan are over."""
TENANTS = ("red", "green")
INTERLEAVED = 0.25
"""In how many seeds transactions are under way at the same time."""


class Mode(StrEnum):
    """Faults until the end, and only safety is judged; or calm after two thirds of the time, and then progress too."""

    SAFETY = "safety"
    LIVENESS = "liveness"


class FaultKind(StrEnum):
    """What can happen."""

    CRASH = "crash"
    """The agent dies, its trees with it; it starts again later."""
    RESTART = "restart"
    """The agent dies and starts again almost at once, on the same host."""
    STOP = "stop"
    """The node drains and leaves; it starts again later."""
    PAUSE_AGENT = "pause_agent"
    """The agent stands still; its attempts run on until their switch."""
    PAUSE_NODE = "pause_node"
    """Everything on the host stands still."""
    CUT_STORE = "cut_store"
    CUT_COORDINATOR = "cut_coordinator"
    MUTE_STORE = "mute_store"
    """One way: requests arrive, replies do not."""
    MUTE_COORDINATOR = "mute_coordinator"
    DEAF_STORE = "deaf_store"
    """One way: requests do not arrive; notices do."""
    SLOW = "slow"
    """Requests and replies of a node take up to `much` seconds."""
    SLOW_REPLIES = "slow_replies"
    """One way: requests are quick, replies take up to `much` seconds."""
    NOTICES = "notices"
    """Notices are late, lost, doubled, out of order."""
    LOST_REPLIES = "lost_replies"
    """Commits are made, and `much` of their replies are lost."""
    EXPIRE = "expire"
    """The coordinator ends a session before its time."""
    HALF_ENTERED = "half_entered"
    """The session of a scheduler ends; when it enters anew it is cut off, `much` requests after it has joined."""
    OUTAGE_STORE = "outage_store"
    OUTAGE_COORDINATOR = "outage_coordinator"
    STEP_NODE = "step_node"
    """The wall clock of a node jumps by `much` seconds."""
    DRIFT = "drift"
    """All clocks of a node go wrong by the part `much`."""
    STEP_STORE = "step_store"
    """The store's clock jumps forward by `much` seconds."""
    SWAP = "swap"
    """A spare node takes part from the instant on at which this one is gone; later they change places again."""
    DRAIN = "drain"
    """The node is on the offline list."""
    CANCEL = "cancel"
    """Somebody cancels the live runs of the job at the place `much`."""


class PlannedFault(Value, frozen=True, kw_only=True):
    """One thing that happens, to one node (by its place) or to a server (-1), for a while."""

    at_s: float
    kind: FaultKind
    node: int = -1
    for_s: float = 0.0
    much: float = 0.0

    @property
    def until_s(self) -> float:
        return self.at_s + self.for_s

    def __str__(self) -> str:
        whom = "" if self.node < 0 else f" of node {self.node}"
        more = f", {self.much:g}" if self.much else ""
        return f"at {self.at_s:g} s: {self.kind}{whom} for {self.for_s:g} s{more}"


class SimJob(Value, frozen=True, kw_only=True):
    """A job of the simulation: when it is due, how long its work takes, and who pays for it."""

    every_s: int
    work_s: float
    tenant: str
    overlap: OverlapPolicy
    from_s: float = 0.0
    """When it is defined."""


class Scenario(Value, frozen=True, kw_only=True):
    """All that a seed decides before anything happens."""

    seed: int
    placement: Placement
    mode: Mode
    nodes: int
    seats: int
    jobs: tuple[SimJob, ...]
    caps: dict[str, int]
    """The cap of each tenant, and of all (`global`)."""
    rates: dict[str, tuple[int, float]] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    """How many items of a tenant may start, in how many seconds."""
    strategy: Strategy
    automatic: bool
    hears: bool
    """Whether the store tells of news."""
    interleaved: bool = False
    """Whether transactions are under way at the same time; otherwise each is one step."""
    finishers: int
    skews_s: tuple[float, ...]
    """How much the wall clocks are off: of the nodes, and last of the spare one."""
    faults: tuple[PlannedFault, ...]

    def only(self, kept: Sequence[int]) -> Scenario:
        """The same with these of its faults."""
        return msgspec.structs.replace(self, faults=tuple(self.faults[n] for n in kept if n < len(self.faults)))


def draw(seed: int, placement: Placement, mode: Mode) -> Scenario:
    """The scenario of a seed."""
    chance = dice(seed, "scenario")
    nodes = chance.choice((3, 3, 3, 4))
    return Scenario(
        seed=seed,
        placement=placement,
        mode=mode,
        nodes=nodes,
        seats=chance.choice((2, 3, 4)),
        jobs=_jobs(chance),
        caps={"global": chance.choice((4, 5)), **{name: chance.choice((2, 3)) for name in TENANTS}},
        rates={name: (4, 8.0) for name in TENANTS if chance.random() < 0.3},
        strategy=chance.choice(list(Strategy)),
        automatic=chance.random() < 0.7,
        hears=chance.random() < 0.9,
        interleaved=dice(seed, "transactions").random() < INTERLEAVED,
        finishers=chance.choice((1, 1, 2)),
        skews_s=tuple(round(chance.uniform(-40, 40), 1) for _ in range(nodes + 1)),
        faults=_faults(dice(seed, "faults"), nodes, mode),
    )


def _jobs(chance: Dice) -> tuple[SimJob, ...]:
    """Most are there from the beginning; sometimes more are defined later."""
    first = [_job(chance, n) for n in range(chance.randint(6, 8))]
    later = [_job(chance, 2) for _ in range(chance.choice((0, 0, 1, 2)))]
    instants = sorted(round(chance.uniform(10, CALM_S - 10), 1) for _ in later)
    late = (msgspec.structs.replace(job, from_s=at_s) for job, at_s in zip(later, instants, strict=True))
    return (*first, *late)


def _job(chance: Dice, number: int) -> SimJob:
    """The first two are long, so that there is always something to lose; the others come often."""
    if number < 2:
        return SimJob(every_s=30, work_s=20.0, tenant=TENANTS[number], overlap=OverlapPolicy.FORBID)
    policies = (OverlapPolicy.FORBID, OverlapPolicy.ALLOW, OverlapPolicy.QUEUE, OverlapPolicy.REPLACE)
    return SimJob(
        every_s=chance.choice((8, 10, 12, 15, 20, 24)),
        work_s=round(chance.uniform(0.05, 2.0), 2),
        tenant=chance.choice(TENANTS),
        overlap=chance.choice(policies),
    )


_POINTS = (FaultKind.EXPIRE, FaultKind.STEP_NODE, FaultKind.DRIFT, FaultKind.STEP_STORE, FaultKind.CANCEL)
_SHORT = (FaultKind.OUTAGE_STORE, FaultKind.OUTAGE_COORDINATOR, FaultKind.LOST_REPLIES, FaultKind.NOTICES)
_SERVERS = (*_SHORT, FaultKind.STEP_STORE, FaultKind.CANCEL)
_LONGEST_S = {FaultKind.RESTART: 0.9, FaultKind.STOP: 15.0, **dict.fromkeys(_SHORT, 12.0)}
SWAPPED_S = 10.0
"""How long two nodes may take to change places."""


_TASTES = tuple(kind for kind in FaultKind if kind is not FaultKind.HALF_ENTERED)


def _faults(chance: Dice, nodes: int, mode: Mode) -> tuple[PlannedFault, ...]:
    """Each seed has a taste: some kinds, often. Some misfortunes come in company; some nodes are drained for good."""
    until_s = CALM_S if mode is Mode.LIVENESS else SECONDS - 5
    taste = chance.sample(_TASTES, 8)
    found = [_fault(chance, chance.choice(taste), nodes, until_s) for _ in range(chance.randint(5, 10))]
    if chance.random() < 0.4:
        found += _chain(chance, nodes, until_s)
    if chance.random() < 0.15:
        found.append(
            PlannedFault(
                at_s=0.0, kind=FaultKind.CUT_STORE, node=chance.randrange(nodes), for_s=round(until_s * 0.6, 1)
            )
        )
    if chance.random() < 0.2:
        found.append(_half_entered(chance, nodes, until_s))
    if chance.random() < 0.3:
        found += [_fault(chance, kind, nodes, until_s) for kind in (FaultKind.SWAP, FaultKind.DRAIN, FaultKind.SWAP)]
    if chance.random() < 0.2:
        found.append(
            PlannedFault(at_s=round(until_s / 2, 1), kind=FaultKind.DRAIN, node=chance.randrange(nodes), for_s=SECONDS)
        )
    return tuple(sorted(found, key=lambda it: (it.at_s, it.kind, it.node)))


def _fault(chance: Dice, kind: FaultKind, nodes: int, until_s: float) -> PlannedFault:
    until_s -= SWAPPED_S if kind is FaultKind.SWAP else 0.0
    at_s = round(chance.uniform(2, until_s - 4), 1)
    longest_s = min(_LONGEST_S.get(kind, 25.0), until_s - at_s)
    for_s = 0.0 if kind in _POINTS else round(chance.uniform(min(0.3, longest_s), longest_s), 1)
    much = {
        FaultKind.SLOW: chance.uniform(0.2, 2.5),
        FaultKind.SLOW_REPLIES: chance.uniform(0.5, 2.2),
        FaultKind.NOTICES: chance.uniform(0.5, 5),
        FaultKind.LOST_REPLIES: chance.uniform(0.2, 0.9),
        FaultKind.STEP_NODE: chance.uniform(-60, 60),
        FaultKind.DRIFT: chance.uniform(-0.01, 0.01),
        FaultKind.STEP_STORE: chance.uniform(0.5, 30),
        FaultKind.CANCEL: chance.randrange(6),
    }.get(kind, 0.0)
    node = -1 if kind in _SERVERS else chance.randrange(nodes)
    return PlannedFault(at_s=at_s, kind=kind, node=node, for_s=for_s, much=round(much, 4))


def _half_entered(chance: Dice, nodes: int, until_s: float) -> PlannedFault:
    at_s, for_s = round(chance.uniform(5, until_s - 10), 1), round(chance.uniform(0.3, 5), 1)
    requests = chance.randint(1, 6)
    return PlannedFault(
        at_s=at_s, kind=FaultKind.HALF_ENTERED, node=chance.randrange(nodes), for_s=for_s, much=float(requests)
    )


def _chain(chance: Dice, nodes: int, until_s: float) -> list[PlannedFault]:
    """A node whose answers are slow stands still, and is cut off when it goes on: what it knows is old, and it cannot
    ask."""
    node, at_s = chance.randrange(nodes), round(chance.uniform(8, until_s - 36), 1)
    pause_s = round(chance.uniform(4, 8), 1)
    cut_at_s = round(at_s + chance.uniform(2.0, pause_s), 1)
    return [
        PlannedFault(at_s=round(at_s - 5, 1), kind=FaultKind.SLOW_REPLIES, node=node, for_s=8.0, much=1.9),
        PlannedFault(at_s=at_s, kind=FaultKind.PAUSE_AGENT, node=node, for_s=pause_s),
        PlannedFault(at_s=cut_at_s, kind=FaultKind.CUT_STORE, node=node, for_s=20.0),
    ]
