"""Placement `claim`: every scheduler takes unowned jobs up to a limit that survives n crashes.

    K jobs, S schedulers that live and are not drained, n faults to survive, X jobs held
    N = 1 + K // max(S - n, 1)          take an unowned job while X < N, and not while drained

The rest is rebalancing: a job is handed over to a named receiver, and kept for it during one session. While rebalancing
is automatic, a scheduler that has its share leaves jobs that just became free to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil

from rota.core.placement.share import moves
from rota.model.cluster import Handover, Peer
from rota.model.value import Value

Order = Callable[[Iterable[int]], Sequence[int]]
"""Which unowned jobs a scheduler tries for, and in which order (A0.12)."""


class Sweep(Value, frozen=True, kw_only=True):
    """What one scheduler knows when it sweeps over all jobs; everything was just read, once."""

    name: str
    peers: tuple[Peer, ...]
    """All schedulers that live, this one included."""
    drained: frozenset[str] = frozenset()
    jobs: frozenset[int] = frozenset()
    """Stored, enabled jobs with a trigger."""
    owned: frozenset[int] = frozenset()
    """Jobs that somebody has claimed."""
    held: frozenset[int] = frozenset()
    """Those that this scheduler has."""
    unowned_s: Mapping[int, float] = {}
    """For how long this scheduler has seen jobs without an owner."""
    handovers: Mapping[int, Handover] = {}
    """Jobs on their way, and to whom."""
    giving: frozenset[int] = frozenset()
    """Those of them that this scheduler is to give; what it took because nobody came for it is not."""
    faults: int = 1
    session_s: float = 4.0
    automatic: bool = True

    @property
    def active(self) -> tuple[Peer, ...]:
        """The schedulers that count as S."""
        return tuple(peer for peer in self.peers if peer.name not in self.drained)

    @property
    def limit(self) -> int:
        return limit(len(self.jobs), len(self.active), self.faults)


class Swept(Value, frozen=True, kw_only=True):
    """What to do."""

    limit: int
    claim: tuple[int, ...] = ()
    """Jobs to try for, in this order."""
    release: tuple[int, ...] = ()
    """Jobs to give up: they are gone or paused, or somebody else shall have them."""


def limit(jobs: int, schedulers: int, faults: int) -> int:
    """N: how many jobs a scheduler may have (S0.10). Then any `faults` schedulers may die, and the others can hold
    all jobs."""
    return 1 + jobs // max(schedulers - faults, 1)


def sweep(facts: Sweep, order: Order | None = None) -> Swept:
    release = sorted(job_id for job_id in facts.held if _shall_go(facts, job_id))
    held = len(facts.held) - len(release)
    claim = () if facts.name in facts.drained else _wanted(facts, order, held)
    return Swept(limit=facts.limit, claim=tuple(claim), release=tuple(release))


def gives(facts: Sweep, most: int) -> dict[int, str]:
    """The jobs that this scheduler should hand over so that everybody has its share, and to whom; at most so many.
    Nothing while something moves: jobs without an owner even out the loads first, and what everybody tells to have must
    be what is owned, or a job would be moved twice."""
    peers = {peer.name: peer for peer in facts.active}
    if not facts.automatic or facts.name not in peers or not _is_calm(facts):
        return {}
    free = sorted(facts.held & facts.jobs)
    loads = {name: peer.held for name, peer in peers.items()}
    found: dict[int, str] = {}
    weights = {name: peer.weight for name, peer in peers.items()}
    limits = {name: limit(len(facts.jobs), len(peers), peer.faults) for name, peer in peers.items()}
    for move in moves(loads, weights, limits):
        if move.giver == facts.name:
            count = min(move.jobs, most - len(found))
            found |= dict.fromkeys(free[len(found) : len(found) + count], move.receiver)
    return found


def _is_calm(facts: Sweep) -> bool:
    told = sum(len(facts.held) if peer.name == facts.name else peer.held for peer in facts.peers)
    own = next(peer.held for peer in facts.peers if peer.name == facts.name)
    return not facts.handovers and facts.jobs == facts.owned and told == len(facts.owned) and own == len(facts.held)


def spare(jobs: int, limits: Iterable[int]) -> int:
    return sum(limits) - jobs


def margin(jobs: int, limits: Iterable[int]) -> int:
    """How many more schedulers may die, whichever they are, before the others cannot hold all jobs by the limits that
    they have now; -1: they cannot even now."""
    left = sorted(limits, reverse=True)
    return sum(sum(left[dead:]) >= jobs for dead in range(len(left) + 1)) - 1


def _shall_go(facts: Sweep, job_id: int) -> bool:
    if job_id not in facts.jobs:
        return True
    it = facts.handovers.get(job_id)
    if it is None or it.to == facts.name or not (it.force or job_id in facts.giving):
        return False
    return it.to in {peer.name for peer in facts.active}


def _wanted(facts: Sweep, order: Order | None, held: int) -> list[int]:
    """Up to the limit: first what is kept for this scheduler, then what is free, up to its share while rebalancing is
    automatic; more only of what nobody else has taken during a whole session."""
    room = facts.limit - held
    unowned = facts.jobs - facts.owned
    free = [it for it in (order(unowned) if order else _own_part_first(facts, unowned)) if _may_try(facts, it)]
    mine = [job_id for job_id in free if _receiver(facts, job_id) == facts.name]
    forced = [job_id for job_id in mine if facts.handovers[job_id].force]
    others = [job_id for job_id in free if _receiver(facts, job_id) != facts.name]
    if facts.automatic:
        under = max(_share(facts) - held - len(mine), 0)
        others = others[:under] + [job_id for job_id in others[under:] if _is_late(facts, job_id)]
    wanted = [*forced, *(job_id for job_id in mine if job_id not in forced), *others]
    return wanted[: max(room, len(forced))]


def _own_part_first(facts: Sweep, job_ids: Iterable[int]) -> list[int]:
    """Who know the same try for different jobs: each begins where the part ends that those before it lack."""
    free = sorted(job_ids)
    shares = _shares(facts)
    lack = {peer.name: max(shares[peer.name] - peer.held, 0.0) for peer in facts.active}
    before = sum(jobs for name, jobs in lack.items() if name < facts.name)
    start = int(len(free) * before / (sum(lack.values()) or 1.0))
    return free[start:] + free[:start]


def _may_try(facts: Sweep, job_id: int) -> bool:
    """True unless the job is on its way to another scheduler, which has one session to claim it."""
    return _receiver(facts, job_id) in (None, facts.name) or _is_late(facts, job_id)


def _receiver(facts: Sweep, job_id: int) -> str | None:
    """For whom a job is kept; for nobody who is not there."""
    it = facts.handovers.get(job_id)
    return None if it is None or it.to not in {peer.name for peer in facts.active} else it.to


def _is_late(facts: Sweep, job_id: int) -> bool:
    return facts.unowned_s.get(job_id, 0.0) > facts.session_s


def _share(facts: Sweep) -> int:
    return ceil(_shares(facts).get(facts.name, 0.0) - 1e-9)


def _shares(facts: Sweep) -> dict[str, float]:
    """How many jobs each scheduler should have, by weight."""
    weights = {peer.name: peer.weight for peer in facts.active}
    each = len(facts.jobs) / (sum(weights.values()) or 1.0)
    return {name: each * weight for name, weight in weights.items()}
