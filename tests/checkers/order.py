"""The judge of dispatch order: replays rounds as they were committed, position by position.

**What a round knew.** A round reads what arrived under the dispatch lock: what it emptied was known to it. What a later
round emptied was not, with one exception: a round that does not follow one of the same node is decided on all that is
committed when it reads the queue, which may be more than what it emptied. What it saw more was committed before the
next round began, so that one empties it. So the replay lags behind the truth in such a round only (`exact` is false
there), and on the safe side: an item counts as waiting, and a seat as free, only from the first round that is proven to
have known it.

**The rule.** Items are ordered by `start_by`, then `not_before`, then the load of their quota (what holds a seat there,
divided by its weight), then id. An item X that a round knew and whose `not_before` had come by the instant of the round
may be passed over at a position (another item Y is given that position although X comes first) only if one of the
limits of X was full there. X and Y are compared only if they need the same executors (`place`): then that Y was given a
seat proves that X had one. Seats that are not proven free count as taken; so a limit excuses even if it was not really
full any more. Equal times in different quotas are judged by load in exact rounds only.

| verdict | what it means                                                                                          |
|---------|--------------------------------------------------------------------------------------------------------|
| passed  | an item that could have had a position was passed over there                                           |
| left    | a round ended before its batch was full, though an item could start on a node that it was giving to    |
| early   | an item was given before its `not_before`                                                              |
| over    | a round gave more than a limit allows; in rounds that are not exact, every seat counts as free whose    |
|         | attempt is on record (`ended`) as over by the instant of the round                                     |
| twice   | an item was given although it held a seat (exact rounds only)                                          |

What committed data cannot show: which executors a round believed alive (so a round that gives nothing is not judged),
and rates (items under a rate are not to be put in such a history).
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Lane(NamedTuple):
    """What items of one kind count against, and who can execute them."""

    limits: tuple[str, ...]
    quota: str
    place: str = ""


class Waits(NamedTuple):
    """A round learned that an item waits for its turn, with so many attempts behind it. Compares by the order of
    dispatch within a lane."""

    start_by: int
    not_before: int
    item: int
    lane: int
    attempt: int = 0


class Freed(NamedTuple):
    """A round learned that an item neither waits nor holds a seat any more."""

    item: int


class Outside(NamedTuple):
    """A round learned that an item has left its node but still counts."""

    item: int


class Given(NamedTuple):
    """One position of a round."""

    wanted: Waits
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A round as it was committed: what it learned, in order, and what it gave, by position."""

    number: int
    at: int
    learned: Sequence[Waits | Freed | Outside] = ()
    given: Sequence[Given] = ()
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What limits and executors allow. A limit without a cap is missing."""

    lanes: Mapping[int, Lane]
    caps: Mapping[str, int]
    seats: Mapping[int, int]
    weights: Mapping[str, int] = field(default_factory=dict)
    ended: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """When attempts (item, attempt) ended, as far as known."""
    batch_max: int = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found. `positions` counts the positions that were judged, `choices` those at which something else could
    have been chosen: without any, nothing was tested."""

    rounds: int
    positions: int
    choices: int
    passed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)

    @property
    def kinds(self) -> dict[str, int]:
        found = {
            "passed": self.passed,
            "left": self.left,
            "early": self.early,
            "over": self.over,
            "twice": self.twice,
        }
        return {kind: len(told) for kind, told in found.items()}

    @property
    def clean(self) -> bool:
        return not any(self.kinds.values())

    def __str__(self) -> str:
        kinds = " ".join(f"{kind}={count}" for kind, count in self.kinds.items())
        return f"rounds={self.rounds} positions={self.positions} with a choice={self.choices} {kinds}"


def judge(rounds: Sequence[Round], rules: Rules) -> Verdict:
    """Replay rounds, in their order, and judge every position."""
    replay = _Replay(rules)
    for round_ in rounds:
        replay.make(round_)
    return Verdict(rounds=len(rounds), positions=replay.positions, choices=replay.choices, **replay.found)


class _Seat(NamedTuple):
    lane: int
    node: int | None
    attempt: int


class _Replay:
    """What is proven to wait and to be seated, and what was found so far."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._waiting: dict[int, list[Waits]] = defaultdict(list)
        self._known: dict[int, Waits] = {}
        self._seats: dict[int, _Seat] = {}
        self._running: Counter[str] = Counter()
        self._on_node: Counter[int] = Counter()
        self.positions = 0
        self.choices = 0
        self.found: dict[str, list[str]] = {"passed": [], "left": [], "early": [], "over": [], "twice": []}

    def make(self, round_: Round) -> None:
        for fact in round_.learned:
            self._learn(fact)
        for position, given in enumerate(round_.given):
            self._judge_position(round_, position, given)
            self._give(round_, position, given)
        self._judge_end(round_)

    def _learn(self, fact: Waits | Freed | Outside) -> None:
        seat = self._seats.get(fact.item)
        if isinstance(fact, Outside):
            if seat is not None:
                self._stand(fact.item)
                self._sit(fact.item, seat._replace(node=None))
            return
        if isinstance(fact, Waits) and seat is not None and seat.attempt > fact.attempt:
            return  # a round that saw more than it emptied has given it out already
        self._forget(fact.item)
        if isinstance(fact, Waits):
            self._known[fact.item] = fact
            insort(self._waiting[fact.lane], fact)

    def _forget(self, item: int) -> None:
        if item in self._seats:
            self._stand(item)
        known = self._known.pop(item, None)
        if known is not None:
            self._waiting[known.lane].remove(known)

    def _judge_position(self, round_: Round, position: int, given: Given) -> None:
        self.positions += 1
        own = given.wanted
        place = self._place(own)
        rivals = [it for it in self._startable(round_.at) if self._place(it) == place and it.item != own.item]
        self.choices += bool(rivals) or len(self._waiting[own.lane]) > 1
        for rival in rivals:
            if self._comes_first(rival, own, exact=round_.exact):
                self._tell("passed", round_, position, f"{rival} was passed over for {own}")
        if own.not_before > round_.at:
            self._tell("early", round_, position, f"{own} at {round_.at}")
        if own.item in self._seats and round_.exact:
            self._tell("twice", round_, position, f"{own} has a seat")

    def _startable(self, at: int) -> Iterator[Waits]:
        """The first of every lane whose limits are proven to have room."""
        for lane, line in self._waiting.items():
            first = next((it for it in line if it.not_before <= at), None)
            if first is not None and all(self._has_room(name) for name in self._rules.lanes[lane].limits):
                yield first

    def _has_room(self, limit: str) -> bool:
        cap = self._rules.caps.get(limit)
        return cap is None or self._running[limit] < cap

    def _comes_first(self, one: Waits, other: Waits, *, exact: bool) -> bool:
        times, other_times = (one.start_by, one.not_before), (other.start_by, other.not_before)
        if times != other_times:
            return times < other_times
        if self._quota(one) == self._quota(other):
            return one.item < other.item
        return exact and (self._load(one), one.item) < (self._load(other), other.item)

    def _quota(self, item: Waits) -> str:
        return self._rules.lanes[item.lane].quota

    def _load(self, item: Waits) -> float:
        quota = self._quota(item)
        return self._running[quota] / self._rules.weights.get(quota, 1)

    def _give(self, round_: Round, position: int, given: Given) -> None:
        own = given.wanted
        self._forget(own.item)
        self._sit(own.item, _Seat(own.lane, given.node, own.attempt + 1))
        for limit in self._rules.lanes[own.lane].limits:
            cap = self._rules.caps.get(limit)
            taken = self._running[limit] if round_.exact else self._surely_taken(limit, round_.at)
            if cap is not None and taken > cap:
                self._tell("over", round_, position, f"{taken} of {cap} in {limit}")

    def _surely_taken(self, limit: str, at: int) -> int:
        theirs = [(item, seat) for item, seat in self._seats.items() if limit in self._rules.lanes[seat.lane].limits]
        return sum(self._rules.ended.get((item, seat.attempt), at + 1) > at for item, seat in theirs)

    def _judge_end(self, round_: Round) -> None:
        if not round_.given or len(round_.given) >= self._rules.batch_max:
            return
        for item in self._startable(round_.at):
            places = {it.node for it in round_.given if self._place(it.wanted) == self._place(item)}
            if any(self._on_node[node] < self._rules.seats[node] for node in places):
                self._tell("left", round_, len(round_.given), f"{item} could have started")

    def _place(self, item: Waits) -> str:
        return self._rules.lanes[item.lane].place

    def _sit(self, item: int, seat: _Seat) -> None:
        self._seats[item] = seat
        self._running.update(self._rules.lanes[seat.lane].limits)
        if seat.node is not None:
            self._on_node[seat.node] += 1

    def _stand(self, item: int) -> None:
        seat = self._seats.pop(item)
        self._running.subtract(self._rules.lanes[seat.lane].limits)
        if seat.node is not None:
            self._on_node[seat.node] -= 1

    def _tell(self, kind: str, round_: Round, position: int, what: str) -> None:
        self.found[kind].append(f"round {round_.number}, position {position}: {what}")
