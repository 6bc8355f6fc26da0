"""Which node gets which shards (S3.1, S3.2, A3.13, V3.4, P.1, P.2, P.3)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.shard import ShardNode, ShardStrategy, allocate, java_hash, proportional

AVERAGE = ShardStrategy.AVERAGE


def nodes(count: int) -> list[ShardNode]:
    return [ShardNode(number) for number in range(1, count + 1)]


def spread(strategy: ShardStrategy, count: int, of: list[ShardNode], job: str = "job") -> list[list[int]]:
    """The shards of the nodes, in the order of their numbers."""
    found = allocate(strategy, job, count, of)
    return [found[node.number] for node in sorted(of)]


@pytest.mark.parametrize(
    ("count", "over", "expected"),
    [
        (9, 3, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
        (8, 3, [[0, 1, 6], [2, 3, 7], [4, 5]]),
        (10, 3, [[0, 1, 2, 9], [3, 4, 5], [6, 7, 8]]),
        (10, 2, [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]),
    ],
)
def test_shards_on_average_and_after_the_loss_of_a_node(count: int, over: int, expected: list[list[int]]) -> None:
    """P.1."""
    assert spread(AVERAGE, count, nodes(over)) == expected


def test_small_jobs_begin_at_either_end() -> None:
    """P.2: `a` has the hash 97, `b` 98."""
    assert spread(ShardStrategy.ODD_EVEN, 2, nodes(3), "a") == [[0], [1], []]
    assert spread(ShardStrategy.ODD_EVEN, 2, nodes(3), "b") == [[], [1], [0]]


@pytest.mark.parametrize(("job", "first"), [("a", 1), ("b", 2), ("c", 0)])
def test_jobs_take_turns_where_they_begin(job: str, first: int) -> None:
    """P.3: 97, 98 and 99 of three nodes; what then is shared out is shared out on average."""
    found = spread(ShardStrategy.ROUND_ROBIN, 4, nodes(3), job)
    turned = found[first:] + found[:first]
    assert turned == spread(AVERAGE, 4, nodes(3))


@pytest.mark.parametrize(
    ("count", "shares", "expected"),
    [
        (10, [5, 3, 2], [5, 3, 2]),
        (7, [1, 1, 1], [3, 2, 2]),
        (5, [2, 1], [3, 2]),
        (3, [0, 0], [2, 1]),
        (4, [0, 1], [0, 4]),
        (0, [1, 2], [0, 0]),
        (5, [0.1, 0.2], [2, 3]),
    ],
)
def test_shares_are_divided_by_the_largest_remainder(count: int, shares: list[float], expected: list[int]) -> None:
    """V3.4."""
    assert proportional(count, shares) == expected


def test_shards_by_weight_and_by_what_is_free() -> None:
    group = [ShardNode(2, weight=3, resource=0.5), ShardNode(1, weight=5, resource=0), ShardNode(7, weight=2)]
    assert spread(ShardStrategy.WEIGHT, 10, group) == [[0, 1, 2, 3, 4], [5, 6, 7], [8, 9]]
    assert spread(ShardStrategy.RESOURCE, 3, group) == [[], [0, 1, 2], []]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("job", 105405), ("polygenelubricants", -(1 << 31)), ("任务", 647942), ("😀", 1772899)],
)
def test_the_hash_is_that_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


SHARE = st.floats(min_value=0, max_value=1e6, allow_nan=False)


@given(count=st.integers(0, 500), shares=st.lists(SHARE, min_size=1, max_size=30))
def test_all_is_divided_and_nobody_is_a_whole_one_off(count: int, shares: list[float]) -> None:
    parts = proportional(count, shares)
    assert sum(parts) == count
    total = sum(shares)
    if total:
        assert all(abs(part - count * share / total) < 1 + 1e-6 for part, share in zip(parts, shares, strict=True))


@given(
    strategy=st.sampled_from(ShardStrategy),
    count=st.integers(0, 200),
    numbers=st.sets(st.integers(1, 50), min_size=1, max_size=20),
    job=st.text(max_size=20),
    dice=st.randoms(use_true_random=False),
)
def test_every_shard_has_one_node_whoever_plans(
    strategy: ShardStrategy, count: int, numbers: set[int], job: str, dice: random.Random
) -> None:
    group = [ShardNode(number, weight=number % 3, resource=number / 7) for number in sorted(numbers)]
    found = allocate(strategy, job, count, group)
    assert sorted(shard for shards in found.values() for shard in shards) == list(range(count))
    assert found.keys() == numbers
    dice.shuffle(group)
    assert allocate(strategy, job, count, group) == found
