"""Shards: which node of a group gets which shards of a task. Shards count from 0, nodes have numbers from 1.

Every strategy gives each shard to exactly one node. All of them are functions of names, numbers and shares alone, so
that whoever plans the same run plans the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple


class ShardStrategy(StrEnum):
    AVERAGE = "average"
    """Runs of neighbours, as long for each node; what is left over goes to the first nodes, one each."""
    ODD_EVEN = "odd_even"
    """The same, from the first node on for a job whose name has an odd hash, and from the last on for an even one: so
    that small jobs do not all meet on the first."""
    ROUND_ROBIN = "round_robin"
    """The same, from a node on that the hash of the name chooses."""
    WEIGHT = "weight"
    """Runs of neighbours, as long as the weights of the nodes say."""
    RESOURCE = "resource"
    """The same by what the nodes have free."""
    HASH = "hash"
    """Each shard by the hash of its own name."""


class ShardNode(NamedTuple):
    """A node of the group, when shards are planned."""

    number: int
    weight: float = 1.0
    resource: float = 0.0
    """Processors that it has free: cores x (1 - CPU)."""


def allocate(strategy: ShardStrategy, job: str, count: int, nodes: Sequence[ShardNode]) -> dict[int, list[int]]:
    """The shards of each node, by its number. There must be a node."""
    by_number = sorted(nodes)
    numbers = [node.number for node in by_number]
    match strategy:
        case ShardStrategy.AVERAGE:
            return _average(count, numbers)
        case ShardStrategy.ODD_EVEN:
            return _average(count, numbers if java_hash(job) % 2 else numbers[::-1])
        case ShardStrategy.ROUND_ROBIN:
            first = abs(java_hash(job)) % len(numbers)
            return _average(count, numbers[first:] + numbers[:first])
        case ShardStrategy.WEIGHT:
            return _in_runs(numbers, proportional(count, [node.weight for node in by_number]))
        case ShardStrategy.RESOURCE:
            return _in_runs(numbers, proportional(count, [node.resource for node in by_number]))
        case ShardStrategy.HASH:
            return _hashed(job, count, numbers)


def proportional(count: int, shares: Sequence[float]) -> list[int]:
    """Divide so many by shares: each gets the whole part of what it is due, and those with the largest remainders one
    more, the earlier first. Shares that are all nothing are equal."""
    exact = [Fraction(max(share, 0.0)) for share in shares]
    total = sum(exact)
    due = [count * share / total if total else Fraction(count, len(shares)) for share in exact]
    parts = [int(it) for it in due]
    by_remainder = sorted(range(len(due)), key=lambda place: parts[place] - due[place])
    for place in by_remainder[: count - sum(parts)]:
        parts[place] += 1
    return parts


def java_hash(text: str) -> int:
    """What Java's `String.hashCode` gives: so jobs that come from ElasticJob keep their nodes."""
    found = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        found = (found * 31 + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found


def _average(count: int, numbers: Sequence[int]) -> dict[int, list[int]]:
    each = count // len(numbers)
    given = _in_runs(numbers, [each] * len(numbers))
    for number, shard in zip(numbers, range(each * len(numbers), count), strict=False):
        given[number].append(shard)
    return given


def _in_runs(numbers: Sequence[int], lengths: Sequence[int]) -> dict[int, list[int]]:
    """So many neighbours for each."""
    given, first = {}, 0
    for number, length in zip(numbers, lengths, strict=True):
        given[number] = list(range(first, first + length))
        first += length
    return given


def _hashed(job: str, count: int, numbers: Sequence[int]) -> dict[int, list[int]]:
    given: dict[int, list[int]] = {number: [] for number in numbers}
    for shard in range(count):
        given[numbers[abs(java_hash(f"{job}/{shard}")) % len(numbers)]].append(shard)
    return given
