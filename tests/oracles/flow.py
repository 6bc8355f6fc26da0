"""The rules of a flow in their shortest form, for the flow engine to be compared with, and random flows to try.

It knows nothing of the engine. After every event it decides all tasks anew, from a few facts alone: which tasks have
begun, how tasks have ended, which will never begin, and whether the run was asked to cancel.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

JOINS = ("all_succeeded", "all_done", "one_succeeded", "one_failed", "none_failed", "always")
POLICIES = ("end", "continue", "ignore")
ENDS = {"succeeded", "failed", "cancelled"}
BAD = {"failed", "cancelled"}
OVER = ENDS | {"skipped"}


@dataclass(frozen=True, slots=True)
class OracleTask:
    """One task of a flow."""

    name: str
    needs: tuple[str, ...]
    join: str
    on_failure: str


class OracleRun:
    """One run of a flow. The caller says how tasks end; the run says which begin."""

    def __init__(self, tasks: Iterable[OracleTask]) -> None:
        self._tasks = tuple(tasks)
        _check(self._tasks)
        self._started = False
        self._asked = False
        self._begun: set[str] = set()
        self._ended: dict[str, str] = {}
        self._unbegun: dict[str, str] = {}
        self._states = {task.name: "waiting" for task in self._tasks}

    @property
    def states(self) -> dict[str, str]:
        """The state of every task."""
        return dict(self._states)

    @property
    def state(self) -> str | None:
        """How the run ended; None while a task is not over."""
        if not OVER.issuperset(self._states.values()):
            return None
        if any(self._states[task.name] == "failed" and task.on_failure != "ignore" for task in self._tasks):
            return "failed"
        return "cancelled" if "cancelled" in self._states.values() else "succeeded"

    def begin(self) -> set[str]:
        """Begin the run. Returns the tasks that begin with it."""
        assert not self._started, "the run has begun already"
        self._started = True
        return self._decide()

    def end(self, batch: Mapping[str, str]) -> set[str]:
        """End these tasks together. Returns the tasks that begin now."""
        for name, how in batch.items():
            assert self._states.get(name) == "running", f"{name} is not running but {self._states.get(name)}"
            assert how in ENDS, f"{name} cannot end {how}"
        self._ended.update(batch)
        return self._decide()

    def cancel(self) -> None:
        """Ask the run to cancel. A task whose needs are all over was decided at their last end, so of a run that has
        begun nothing changes at once."""
        assert self._started
        self._asked = True

    def _decide(self) -> set[str]:
        """Decide all tasks anew. Returns those that begin."""
        before, after = self._states, self._fixpoint()
        new = {name for name, state in after.items() if state == "running" != before[name]}
        assert all(after[name] == state for name, state in before.items() if state in OVER)
        self._begun |= new
        self._unbegun |= {name: state for name, state in after.items() if state in OVER and name not in self._begun}
        self._states = after
        return new

    def _fixpoint(self) -> dict[str, str]:
        """Start from the facts, and decide all tasks until nothing changes."""
        known = dict.fromkeys(self._begun, "running") | self._ended | self._unbegun
        states = {task.name: known.get(task.name, "waiting") for task in self._tasks}
        while (after := {task.name: self._next(task, states) for task in self._tasks}) != states:
            states = after
        return states

    def _next(self, task: OracleTask, states: Mapping[str, str]) -> str:
        """The state that `task` has when all tasks have `states`."""
        if states[task.name] != "waiting":
            return states[task.name]
        needs = [states[need] for need in task.needs]
        if _runs(task.join, needs) and self._lets_begin(task, states):
            return "running"
        without_beginning = "cancelled" if self._asked else "skipped"
        return without_beginning if OVER.issuperset(needs) else "waiting"

    def _lets_begin(self, task: OracleTask, states: Mapping[str, str]) -> bool:
        """True if neither a request to cancel nor an ending run keeps `task` from beginning."""
        ending = any(states[other.name] == "failed" and other.on_failure == "end" for other in self._tasks)
        return not self._asked and (not ending or task.join == "always")


def _runs(join: str, needs: Sequence[str]) -> bool:
    """True if a task runs whose needs have these states; one that does not is skipped once they are all over."""
    over = OVER.issuperset(needs)
    rules = {
        "all_succeeded": all(need == "succeeded" for need in needs),
        "none_failed": over and BAD.isdisjoint(needs),
        "all_done": over,
        "always": over,
        "one_succeeded": "succeeded" in needs,
        "one_failed": not BAD.isdisjoint(needs),
    }
    return not needs or rules[join]


def _check(tasks: Sequence[OracleTask]) -> None:
    """Fail on tasks that are no flow."""
    graph = {task.name: task.needs for task in tasks}
    assert len(graph) == len(tasks), "two tasks have one name"
    assert all(need in graph for needs in graph.values() for need in needs), "a task needs an unknown one"
    assert all(task.join in JOINS and task.on_failure in POLICIES for task in tasks), "a join or policy is unknown"
    TopologicalSorter(graph).prepare()


Shape = list[set[int]]
"""What each task needs, by position. A task needs earlier ones only, so the beginning of a shape is a shape too."""


def random_flow(rng: random.Random, most: int = 60) -> list[OracleTask]:
    """A flow of at most `most` tasks. Neither the order of the tasks nor their names tell which come first."""
    shape = _shape(rng, most)
    names = [f"t{number}" for number in rng.sample(range(len(shape)), len(shape))]
    plain = rng.uniform(0.5, 1)
    policies = rng.choice([(1, 1, 1), (8, 1, 1), (1, 8, 8), (0, 1, 1), (1, 0, 0)])
    tasks = [
        OracleTask(
            name=name,
            needs=tuple(rng.sample([names[need] for need in sorted(needs)], len(needs))),
            join="all_succeeded" if rng.random() < plain else rng.choice(JOINS[1:]),
            on_failure=rng.choices(POLICIES, policies)[0],
        )
        for name, needs in zip(names, shape, strict=True)
    ]
    rng.shuffle(tasks)
    return tasks


def _shape(rng: random.Random, most: int) -> Shape:
    """One form, or up to four that stand beside each other or hang on tasks of those before."""
    assert most > 0
    shape: Shape = []
    for _ in range(rng.choice([1, 1, 2, 3, 4])):
        if room := most - len(shape):
            form = rng.choice(FORMS)
            shape += _placed(rng, form(rng, room)[:room], len(shape))
    return shape


def _placed(rng: random.Random, form: Shape, start: int) -> Shape:
    """The form as it is from position `start` on; about half of its roots get a need among the tasks before."""
    moved = [{need + start for need in needs} for needs in form]
    return [needs or ({rng.randrange(start)} if start and rng.random() < 0.5 else set()) for needs in moved]


def _chain(rng: random.Random, most: int) -> Shape:
    """Each task needs the one before."""
    return [{at - 1} if at else set() for at in range(rng.randint(1, most))]


def _fan(rng: random.Random, most: int) -> Shape:
    """Up to 20 tasks with one task after all of them and often one before all of them."""
    source: Shape = [set()] if rng.random() < 0.7 else []
    width = rng.randint(1, max(1, min(20, most - 2)))
    first = len(source)
    return source + [set(range(first)) for _ in range(width)] + [set(range(first, first + width))]


def _diamonds(rng: random.Random, most: int) -> Shape:
    """Diamonds in a row: each opens into two to four tasks and closes in the task that opens the next."""
    shape: Shape = [set()]
    for _ in range(rng.randint(1, max(1, most // 4))):
        opening, sides = len(shape) - 1, rng.randint(2, 4)
        shape += [{opening} for _ in range(sides)] + [set(range(opening + 1, opening + 1 + sides))]
    return shape


def _layers(rng: random.Random, most: int) -> Shape:
    """Layers of up to ten tasks that need some of the layer before, and now and then one of any earlier layer."""
    shape: Shape = [set() for _ in range(rng.randint(1, 10))]
    before = range(len(shape))
    while len(shape) < most and rng.random() < 0.85:
        layer = range(len(shape), len(shape) + rng.randint(1, 10))
        for _ in layer:
            any_earlier = {rng.randrange(before.stop)} if rng.random() < 0.2 else set()
            shape.append(_some(rng, before) | any_earlier)
        before = layer
    return shape


def _scattered(rng: random.Random, most: int) -> Shape:
    """Each task needs up to four of any earlier ones, or none: many roots and sinks."""
    roots = rng.uniform(0, 0.5)
    return [_some(rng, range(at)) if at and rng.random() > roots else set() for at in range(rng.randint(1, most))]


def _some(rng: random.Random, of: Sequence[int]) -> set[int]:
    """At least one and at most four of these."""
    return set(rng.sample(of, rng.randint(1, min(4, len(of)))))


FORMS: tuple[Callable[[random.Random, int], Shape], ...] = (_chain, _fan, _diamonds, _layers, _scattered)
