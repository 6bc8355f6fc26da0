"""The dispatch rule: order, caps, rates, groups, handlers, targets (S2.2, S2.3, S2.4, S2.13, S2.14, S2.15, S2.33)."""

import random

import pytest

from rota.core.dispatch.board import Rounds
from rota.core.dispatch.rate import LOOK_US, UNBEGUN
from rota.model.dispatch import Arrival, ArrivalKind, Given, Ready, Seated, Target
from rota.model.work import GLOBAL, Lane, Limit, Rate, quota_limit
from tests.oracles.dispatch import State, plain_round

S = 1_000_000


def ready(item_id: int, lane_id: int = 1, start_by: int = 0, not_before: int = 0, **more: int) -> Ready:
    return Ready(item_id, 0, 0, lane_id, start_by, not_before, **more)


def node(
    node_id: int, seats: int = 1000, group: str = "default", handlers: tuple[str, ...] = (), busy: float = 0
) -> Target:
    return Target(node_id, f"node-{node_id}", group, seats, frozenset(handlers), busy)


def board(
    lanes: dict[int, Lane], limits: list[Limit], ready_: list[Ready], seated: list[Seated] | None = None
) -> Rounds:
    rounds = Rounds()
    rounds.lanes = lanes
    rounds.set_limits(limits)
    rounds.rebuild(ready_, seated or [])
    return rounds


def ids(given: object) -> list[int]:
    return [it.ready.item_id for it in given]  # type: ignore[attr-defined]


ONE = {1: Lane(tenant="a")}


def test_the_earliest_acceptable_start_comes_first_then_the_earliest_expected_then_the_oldest() -> None:
    """S2.15, S2.33"""
    items = [
        ready(1, start_by=9),
        ready(2, start_by=5, not_before=4),
        ready(3, start_by=5, not_before=3),
        ready(4, start_by=5, not_before=3),
    ]
    rounds = board(ONE, [], items)
    assert ids(rounds.plan(10, [node(1)], 10).given) == [3, 4, 2, 1]


def test_an_item_starts_when_its_expected_start_has_come_and_not_before() -> None:
    """S2.14, A2.3"""
    rounds = board(ONE, [], [ready(1, not_before=5), ready(2, not_before=6)])
    plan = rounds.plan(5, [node(1)], 10)
    assert (ids(plan.given), plan.next_us) == ([1], 6)
    assert ids(rounds.plan(6, [node(1)], 10).given) == [2]


def test_two_tenants_of_sixty_share_a_hundred_and_neither_gets_more_than_its_own() -> None:
    """V2.3"""
    lanes = {1: Lane(tenant="a"), 2: Lane(tenant="b")}
    limits = [Limit(name=GLOBAL, cap=100), Limit(name="quota:a/default", cap=60), Limit(name="quota:b/default", cap=60)]
    rounds = board(lanes, limits, [ready(n, 1 + n % 2) for n in range(400)])
    given = rounds.plan(0, [node(1)], 1000).given
    lanes_given = [it.ready.lane_id for it in given]
    assert len(given) == 100
    assert max(lanes_given.count(1), lanes_given.count(2)) <= 60


def test_the_global_cap_is_a_hundred_until_it_is_set() -> None:
    """S2.25"""
    assert len(board(ONE, [], [ready(n) for n in range(150)]).plan(0, [node(1)], 1000).given) == 100


def test_equal_times_go_to_the_quota_with_the_least_running_by_weight() -> None:
    lanes = {1: Lane(tenant="a"), 2: Lane(tenant="b")}
    limits = [Limit(name="quota:a/default", weight=3), Limit(name="quota:b/default", weight=1)]
    rounds = board(lanes, limits, [ready(n, 1 + n % 2) for n in range(40)])
    first = [it.ready.lane_id for it in rounds.plan(0, [node(1)], 20).given]
    assert first.count(1) == 15
    assert first.count(2) == 5


def test_a_full_quota_does_not_hold_up_others() -> None:
    """A2.7: one tenant's backlog with earlier deadlines does not starve the rest."""
    lanes = {1: Lane(tenant="a"), 2: Lane(tenant="b")}
    limits = [Limit(name="quota:a/default", cap=1)]
    rounds = board(lanes, limits, [*(ready(n, 1, start_by=n) for n in range(50)), ready(99, 2, start_by=1000)])
    assert ids(rounds.plan(0, [node(1)], 10).given) == [0, 99]


def test_a_lowered_cap_stops_new_starts_only() -> None:
    """A2.11"""
    rounds = board(ONE, [Limit(name=GLOBAL, cap=5)], [ready(n) for n in range(9)])
    assert len(rounds.plan(0, [node(1)], 10).given) == 5
    rounds.set_limits([Limit(name=GLOBAL, cap=2)])
    assert rounds.plan(0, [node(1)], 10).given == []
    rounds.take([Arrival(ArrivalKind.ENDED, item_ids=[0, 1, 2])])
    assert rounds.plan(0, [node(1)], 10).given == []
    rounds.take([Arrival(ArrivalKind.ENDED, item_ids=[3])])
    assert ids(rounds.plan(0, [node(1)], 10).given) == [5]


def test_a_rate_allows_no_more_in_any_period() -> None:
    rate = Rate(max=3, period_s=1)
    rounds = board(ONE, [Limit(name="quota:a/default", rate=rate), Limit(name=GLOBAL)], [ready(n) for n in range(500)])
    starts: list[int] = []
    for at in range(0, 20 * S, 37_000):
        given = rounds.plan(at, [node(1)], 10).given
        rounds.begin([(it.ready.item_id, 1, at) for it in given])
        starts += [at] * len(given)
    for at in starts:
        assert sum(at <= it < at + S for it in starts) <= 3
    assert len(starts) > 50


def test_a_rate_holds_for_starts_however_long_they_take_to_begin() -> None:
    """What was given begins after a while, is over before that is known, or is lost with its node."""
    rng = random.Random(7)
    rate = Rate(max=5, period_s=1)
    rounds = board(ONE, [Limit(name=GLOBAL, rate=rate)], [ready(n) for n in range(900)])
    begins: list[tuple[int, int]] = []
    starts: list[int] = []
    for at in range(0, 60 * S, 41_000):
        due = [it for it in begins if it[0] <= at]
        begins = [it for it in begins if it[0] > at]
        starts += [begun for begun, _ in due]
        fates = [(begun, item, rng.choice(["told", "told", "over", "lost"])) for begun, item in due]
        rounds.begin([(item, 1, begun) for begun, item, fate in fates if fate == "told"])
        over = [item for _, item, fate in fates if fate != "told"]
        rounds.take([Arrival(ArrivalKind.ENDED, item_ids=over)])
        given = rounds.plan(at, [node(1, 1000)], 10).given
        begins += [(at + rng.choice([1_000, 30_000, 1_500_000]), it.ready.item_id) for it in given]
    starts.sort()
    for first, sixth in zip(starts, starts[5:], strict=False):
        assert sixth - first >= S
    assert len(starts) > 80, "the rate is used"


def test_the_rate_says_when_it_allows_the_next() -> None:
    rounds = board(ONE, [Limit(name=GLOBAL, rate=Rate(max=2, period_s=1))], [ready(n) for n in range(9)])
    plan = rounds.plan(5 * S, [node(1)], 10)
    assert (len(plan.given), plan.next_us) == (2, 5 * S + LOOK_US[0])
    assert plan.limits[0].recent == ((UNBEGUN, 2),)
    rounds.begin([(0, 1, 5 * S + 10), (1, 1, 5 * S + 20)])
    plan = rounds.plan(5 * S + 100_000, [node(1)], 10)
    assert (len(plan.given), plan.next_us) == (0, 6 * S + 10)
    assert plan.limits[0].recent == ((5 * S + 10, 1), (5 * S + 20, 1))


def test_an_instant_of_a_start_that_cannot_be_right_is_taken_for_now() -> None:
    for told in (5 * S - 1, 9 * S):
        rounds = board(ONE, [Limit(name=GLOBAL, rate=Rate(max=1, period_s=1))], [ready(n) for n in range(9)])
        rounds.plan(5 * S, [node(1)], 10)
        rounds.begin([(0, 1, told)])
        assert rounds.plan(6 * S, [node(1)], 10).limits[0].recent == ((6 * S, 1),)


def test_a_board_that_is_filled_anew_knows_what_has_not_begun() -> None:
    """Of three that the rate remembers as given one has not begun; when the others did is not known any more."""
    limit = Limit(name=GLOBAL, rate=Rate(max=3, period_s=1), recent=((8 * S, 1), (UNBEGUN, 3)))
    rounds = board(ONE, [limit], [ready(n) for n in range(9)])
    rounds.rebuild([ready(n) for n in range(9)], [Seated(100, 1, 1, 1, 5 * S), Seated(101, 1, 1, 1)])
    plan = rounds.plan(9 * S, [node(1)], 10)
    assert (plan.given, plan.limits[0].recent) == ([], ((8 * S, 1), (9 * S, 2), (UNBEGUN, 1)))
    assert rounds.unbegun == {100: 5 * S}


def test_late_slots_start_at_their_own_rate_even_if_all_of_them_are_due() -> None:
    """They were spread, but their seat was busy until now."""
    lanes = {1: Lane(tenant="a", job_id=7, late_rate=Rate.per_second(0.5)), 2: Lane(tenant="a")}
    rounds = board(lanes, [], [ready(n) for n in range(6)] + [ready(9, 2)])
    starts: list[int] = []
    for at in range(0, 20 * S, 100_000):
        given = rounds.plan(at, [node(1)], 10).given
        rounds.begin([(it.ready.item_id, 1, at) for it in given])
        starts += [at for it in given if it.ready.lane_id == 1]
    assert starts == [n * 2 * S for n in range(6)]


@pytest.mark.parametrize(("per_s", "rate"), [(0.5, (1, 2.0)), (1, (1, 1.0)), (2.5, (3, 1.2)), (1000, (1000, 1.0))])
def test_so_many_a_second_is_a_rate(per_s: float, rate: tuple[int, float]) -> None:
    assert Rate.per_second(per_s) == Rate(max=rate[0], period_s=rate[1])


def test_a_job_has_a_cap_and_a_rate_of_its_own() -> None:
    lanes = {1: Lane(tenant="a", job_id=7, job_cap=2), 2: Lane(tenant="a", job_id=8, job_rate=Rate(max=1, period_s=9))}
    rounds = board(lanes, [], [ready(n, 1 + n % 2) for n in range(20)])
    given = rounds.plan(0, [node(1)], 100)
    assert sorted(it.ready.lane_id for it in given.given) == [1, 1, 2]
    assert [limit.name for limit in given.limits] == ["job:8"]


def test_a_named_resource_is_shared_by_quotas() -> None:
    lanes = {1: Lane(tenant="a", resources=("gpu",)), 2: Lane(tenant="b", resources=("gpu",)), 3: Lane(tenant="c")}
    rounds = board(lanes, [Limit(name="resource:gpu", cap=3)], [ready(n, 1 + n % 3) for n in range(30)])
    lanes_given = [it.ready.lane_id for it in rounds.plan(0, [node(1)], 100).given]
    assert (lanes_given.count(1) + lanes_given.count(2), lanes_given.count(3)) == (3, 10)


def test_free_seats_are_filled_evenly_ties_by_busy_score_then_name() -> None:
    """V1.6: free = {A:3, B:2, C:1}, 5 tasks -> A, A, B, A, B."""
    rounds = board(ONE, [], [ready(n) for n in range(5)])
    nodes = [node(1, 3), node(2, 2), node(3, 1)]
    assert [it.node_id for it in rounds.plan(0, nodes, 10).given] == [1, 1, 2, 1, 2]
    rounds = board(ONE, [], [ready(1)])
    assert rounds.plan(0, [node(1, 3, busy=9), node(2, 3, busy=1)], 10).given[0].node_id == 2


@pytest.mark.parametrize(
    ("lane", "able"),
    [
        (Lane(tenant="a", group="gpu"), False),
        (Lane(tenant="a", handler="default/default/x"), True),
        (Lane(tenant="a", handler="default/default/y"), False),
        (Lane(tenant="a", handler="reports.daily:send"), True),
        (Lane(tenant="a", handler="reports:send"), False),
    ],
)
def test_an_item_waits_for_an_executor_of_its_group_that_has_its_handler(lane: Lane, able: bool) -> None:
    rounds = board({1: lane}, [], [ready(1)])
    target = node(1, handlers=("default/default/x", "reports.daily:*"))
    assert bool(rounds.plan(0, [target], 10).given) is able


def test_a_retry_goes_to_another_node_when_there_is_one() -> None:
    assert board(ONE, [], [ready(1, avoid_id=1)]).plan(0, [node(1, 9), node(2, 1)], 9).given[0].node_id == 2
    assert board(ONE, [], [ready(1, avoid_id=1)]).plan(0, [node(1, 9)], 9).given[0].node_id == 1


def test_what_is_told_twice_or_late_changes_nothing() -> None:
    rounds = board(ONE, [], [])
    arrival = Arrival(ArrivalKind.READY, ready=[ready(1), ready(2)])
    rounds.take([arrival, arrival])
    assert ids(rounds.plan(0, [node(1)], 10).given) == [1, 2]
    rounds.take([Arrival(ArrivalKind.ENDED, item_ids=[1]), Arrival(ArrivalKind.ENDED, item_ids=[1])])
    assert rounds.seated == 1


def test_an_arrival_that_is_learned_again_after_its_item_was_given_frees_no_seat() -> None:
    """A board that is rebuilt while an item arrives knows the item before it is told of it."""
    rounds = board(ONE, [Limit(name=GLOBAL, cap=1)], [ready(1), ready(2)])
    assert ids(rounds.plan(0, [node(1)], 10).given) == [1]
    rounds.take([Arrival(ArrivalKind.READY, ready=[ready(1), ready(2)])])
    assert ids(rounds.plan(0, [node(1)], 10).given) == []
    assert rounds.seated == 1
    rounds.take([Arrival(ArrivalKind.READY, ready=[ready(1, attempt=1)])])  # now it really came back
    assert ids(rounds.plan(0, [node(1)], 10).given) == [1]


def test_an_item_that_is_cancelled_while_it_waits_is_not_given() -> None:
    rounds = board(ONE, [], [ready(1), ready(2), ready(3, not_before=5)])
    rounds.take([Arrival(ArrivalKind.GONE, item_ids=[1, 3])])
    assert ids(rounds.plan(9, [node(1)], 10).given) == [2]
    assert rounds.waiting == 0


def test_an_item_finished_from_outside_leaves_its_node_but_keeps_its_quota() -> None:
    rounds = board(ONE, [Limit(name="quota:a/default", cap=2)], [ready(n) for n in range(4)])
    assert len(rounds.plan(0, [node(1, 1)], 10).given) == 1
    rounds.take([Arrival(ArrivalKind.OUTSIDE, left=[(0, 1)])])
    assert ids(rounds.plan(0, [node(1, 1)], 10).given) == [1]
    rounds.take([Arrival(ArrivalKind.OUTSIDE, left=[(1, 1)])])
    assert ids(rounds.plan(0, [node(1, 1)], 10).given) == []


def test_an_item_that_was_gone_when_it_was_given_holds_no_seat() -> None:
    rounds = board(ONE, [Limit(name=GLOBAL, cap=1)], [ready(1), ready(2)])
    assert ids(rounds.plan(0, [node(1)], 10).given) == [1]
    rounds.refused([1])
    assert ids(rounds.plan(0, [node(1)], 10).given) == [2]


def random_state(rng: random.Random, tag: int) -> State:
    """Few distinct values, so that ties and full limits are common."""
    tenants, groups, handlers = ["a", "b", "c"], ["default", "gpu"], ["", "x", "m:f"]
    lanes = {
        lane_id: Lane(
            tenant=rng.choice(tenants),
            quota=rng.choice(["default", "slow"]),
            group=rng.choices(groups, [9, 1])[0],
            handler=rng.choices(handlers, [8, 1, 1])[0],
            job_id=rng.choice([0, 0, 1, 2]),
            job_cap=rng.choice([None, None, 3]),
            job_rate=rng.choice([None, None, None, None, Rate(max=2, period_s=1)]),
            resources=rng.choice([(), (), ("r",)]),
        )
        for lane_id in range(1, rng.randint(2, 9))
    }
    names = [GLOBAL, "resource:r", *(quota_limit(t, q) for t in tenants for q in ("default", "slow"))]
    limits = [
        Limit(
            name=name,
            cap=rng.choice([None, None, 2, 9, 20]),
            weight=rng.choice([1, 1, 3]),
            rate=rng.choice([None] * 9 + [Rate(max=rng.randint(1, 3), period_s=1)]),
            recent=rng.choice([(), ((9 * S, 1),), ((int(9.5 * S), 2),)]),
        )
        for name in names
        if rng.random() < 0.6
    ]
    targets = [
        Target(
            n,
            f"n{n}",
            rng.choice(groups),
            rng.randint(0, 12),
            frozenset(rng.sample(["x", "m:*"], rng.randint(0, 2))),
            rng.choice([0.0, 1.0]),
        )
        for n in range(1, rng.randint(1, 5))
    ]
    seated = [
        Seated(1000 * tag + n, rng.choice(list(lanes)), rng.choice([None, 1, 2])) for n in range(rng.randint(0, 6))
    ]
    items = [
        Ready(
            1000 * tag + 100 + n,
            0,
            0,
            rng.choice(list(lanes)),
            rng.randint(0, 3),
            rng.choice([0, 1, 10 * S, 11 * S]),
            avoid_id=rng.choice([None, None, 1, 2]),
        )
        for n in range(rng.randint(0, 30))
    ]
    return State(10 * S, items, seated, lanes, limits, targets)


def test_cached_rounds_give_what_the_plain_rule_gives_on_a_thousand_random_states() -> None:
    assigned = blocked = 0
    for seed in range(1000):
        rng = random.Random(seed)
        state = random_state(rng, 1)
        rounds = board(state.lanes, list(state.limits), [], list(state.seated))
        cut = rng.randint(0, len(state.ready))
        rounds.take(
            [Arrival(ArrivalKind.READY, ready=state.ready[:cut]), Arrival(ArrivalKind.READY, ready=state.ready[cut:])]
        )
        limit = rng.choice([3, 100])
        assert list(rounds.plan(state.now_us, state.targets, limit).given) == plain_round(state, limit), seed
        assigned += len(plain_round(state, limit))
        blocked += rounds.waiting
    assert assigned > 1500
    assert blocked > 5000


def test_cached_rounds_stay_right_through_many_rounds_of_arrivals_and_ends() -> None:
    for seed in range(100):
        rng = random.Random(f"rounds {seed}")
        state = random_state(rng, 1)
        rounds = board(state.lanes, list(state.limits), list(state.ready), list(state.seated))
        waiting, seats = {it.item_id: it for it in state.ready}, {it.item_id: it for it in state.seated}
        limits = {limit.name: limit for limit in state.limits}
        now = state.now_us
        for step in range(2, 12):
            now += rng.choice([1, S // 3, S])
            plan = rounds.plan(now, state.targets, 5)
            expected = plain_round(
                State(
                    now, list(waiting.values()), list(seats.values()), state.lanes, list(limits.values()), state.targets
                ),
                5,
            )
            assert list(plan.given) == expected, (seed, step)
            limits |= {limit.name: limit for limit in plan.limits}
            _move(plan.given, waiting, seats)
            ended = rng.sample(list(seats), len(seats) // 2)
            fresh = [
                Ready(5000 * step + n, 0, 0, rng.choice(list(state.lanes)), rng.randint(0, 3), now)
                for n in range(rng.randint(0, 5))
            ]
            gone = rng.sample(list(waiting), len(waiting) // 5)
            for item_id in ended:
                del seats[item_id]
            for item_id in gone:
                del waiting[item_id]
            waiting |= {it.item_id: it for it in fresh}
            rounds.take(
                [
                    Arrival(ArrivalKind.ENDED, item_ids=ended),
                    Arrival(ArrivalKind.GONE, item_ids=gone),
                    Arrival(ArrivalKind.READY, ready=fresh),
                ]
            )


def _move(given: object, waiting: dict[int, Ready], seats: dict[int, Seated]) -> None:
    for it in given:  # type: ignore[attr-defined]
        assert isinstance(it, Given)
        del waiting[it.ready.item_id]
        seats[it.ready.item_id] = Seated(it.ready.item_id, it.ready.lane_id, it.node_id)


@pytest.mark.parametrize(("back_s", "opens_s"), [(3600, 0), (5, 15)])
def test_a_clock_that_was_set_back_delays_a_rate_by_two_periods_at_most(back_s: int, opens_s: int) -> None:
    limit = Limit(name=GLOBAL, rate=Rate(max=1, period_s=10), recent=((back_s * S, 1),))
    rounds = board(ONE, [limit], [ready(1)])
    plan = rounds.plan(0, [node(1)], 10)
    assert (len(plan.given), plan.next_us) == ((1, None) if not opens_s else (0, opens_s * S))


def test_that_an_earlier_attempt_left_its_node_is_old_news() -> None:
    rounds = board(ONE, [], [ready(0, attempt=1), ready(1)])
    assert ids(rounds.plan(0, [node(1, 1)], 10).given) == [0]
    rounds.take([Arrival(ArrivalKind.OUTSIDE, left=[(0, 1)])])  # the present attempt is the second
    assert ids(rounds.plan(0, [node(1, 1)], 10).given) == []
