"""Placement `scope`: a leader cuts all jobs into parts, one for each scheduler.

    scope      average = total // nodes, in the order of addresses; the last takes the rest (V4.2)
    balanced   sizes that differ by at most one, by weight where nodes have different ones (V4.3)
    stable     each job goes to the node that its hash prefers, so that few move when nodes come and go

Parts are ranges of creation numbers, which are never used again. The first begins at the beginning and the last has no
end, so every job, also one that is created later, has an owner.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import log

from rota.core.placement.share import targets
from rota.model.cluster import Part, Peer, ScopePlan, Strategy

SKEW = 1.25
"""A part that is this much larger than the mean is cut anew."""


def spans(total: int, weights: Sequence[float], strategy: Strategy) -> list[tuple[int, int]]:
    """The ordinals (from 1, both ends included) of each node's part; an empty part ends before it begins."""
    if strategy is Strategy.SCOPE:
        sizes = [total // len(weights)] * (len(weights) - 1) if weights else []
    else:
        sizes = _sizes(total, weights)[:-1]
    ends = list(accumulate(sizes))
    return list(zip([1, *(end + 1 for end in ends)], [*ends, total], strict=True)) if weights else []


def plan(peers: Iterable[Peer], jobs: Sequence[int], strategy: Strategy, epoch: int) -> ScopePlan:
    """Cut the jobs (creation numbers, rising) among the schedulers that live and are not drained."""
    nodes = sorted(peers, key=lambda peer: (peer.address, peer.name))
    names, weights = tuple(peer.name for peer in nodes), tuple(peer.weight for peer in nodes)
    if strategy is Strategy.STABLE or not nodes:
        return ScopePlan(epoch=epoch, strategy=strategy, names=names, weights=weights)
    cuts = spans(len(jobs), weights, strategy)
    starts = [1, *(_start(jobs, first) for first, _ in cuts[1:])]
    ends = [*(start - 1 for start in starts[1:]), None]
    parts = tuple(Part(name=name, first=start, last=end) for name, start, end in zip(names, starts, ends, strict=True))
    return ScopePlan(epoch=epoch, strategy=strategy, names=names, weights=weights, parts=parts)


def owner_of(cut: ScopePlan) -> Callable[[int], str | None]:
    if cut.strategy is Strategy.STABLE:
        weights = dict(zip(cut.names, cut.weights, strict=True))
        return lambda job_id: preferred(job_id, weights)
    return lambda job_id: next((part.name for part in cut.parts if job_id in part), None)


def preferred(job_id: int, weights: Mapping[str, float]) -> str | None:
    """Rendezvous hashing: every (node, job) has a score, and the highest wins; who leaves takes only its own along."""
    return max(weights, key=lambda name: (_score(name, job_id, weights[name]), name), default=None)


def needs_plan(last: ScopePlan | None, peers: Iterable[Peer], jobs: Sequence[int], strategy: Strategy) -> bool:
    """Whether the jobs must be cut anew: other schedulers, another strategy, or one part grew far beyond the mean."""
    peers = list(peers)
    if last is None or last.strategy is not strategy:
        return True
    if {peer.name: peer.weight for peer in peers} != dict(zip(last.names, last.weights, strict=True)):
        return True
    return strategy is Strategy.BALANCED and _is_skewed(last, jobs)


def next_epoch(last: ScopePlan | None, told: Iterable[int]) -> int:
    """The epoch of the next plan: behind the highest that anybody knows of, also when the last one is lost."""
    return 1 + max(0 if last is None else last.epoch, *told, 0)


def _is_skewed(last: ScopePlan, jobs: Sequence[int]) -> bool:
    owner, held = owner_of(last), dict.fromkeys(last.names, 0)
    for job_id in jobs:
        if (name := owner(job_id)) is not None:
            held[name] += 1
    fair = targets(held, dict(zip(last.names, last.weights, strict=True)))
    return any(held[name] > SKEW * fair[name] + 1 for name in held)


def _sizes(total: int, weights: Sequence[float]) -> list[int]:
    """By largest remainder, ties by place: the first ones get one more."""
    whole = sum(weights)
    exact = [total * weight / whole for weight in weights]
    sizes = [int(share) for share in exact]
    by_rest = sorted(range(len(weights)), key=lambda n: (sizes[n] - exact[n], n))
    for n in by_rest[: total - sum(sizes)]:
        sizes[n] += 1
    return sizes


def _start(jobs: Sequence[int], ordinal: int) -> int:
    """The creation number at an ordinal; behind the last job, what comes after it."""
    if ordinal <= len(jobs):
        return jobs[ordinal - 1]
    return jobs[-1] + 1 if jobs else 1


def _score(name: str, job_id: int, weight: float) -> float:
    drawn = int.from_bytes(hashlib.blake2b(f"{name}/{job_id}".encode(), digest_size=8).digest(), "big")
    return -weight / log((drawn + 0.5) / 2**64) if weight > 0 else 0.0
