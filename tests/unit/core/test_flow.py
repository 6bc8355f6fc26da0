"""Which tasks of a run begin and which are skipped, compared with an oracle that counts nothing (A3.1, A3.7, S3.12,
S3.16, S3.17)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from rota.core import flow as flow_module
from rota.core.flow import FlowTally, TaskTally, advance
from rota.model.graph import Graph, Join, OnFailure, cycle_of
from rota.model.states import RunState, TaskState
from tests.oracles.flow import OracleRun, OracleTask, random_flow

FLOWS = 1000
ENDS = (TaskState.SUCCEEDED,) * 6 + (TaskState.FAILED,) * 3 + (TaskState.CANCELLED,)


@dataclass(frozen=True)
class Step:
    name: str
    needs: tuple[str, ...] = ()
    join: Join = Join.ALL_SUCCEEDED
    on_failure: OnFailure = OnFailure.CONTINUE

    @classmethod
    def of(cls, task: OracleTask) -> Step:
        return cls(task.name, task.needs, Join(task.join), OnFailure(task.on_failure))


class KeptRun:
    """A run as a store keeps it: rows of tasks that something has happened to, read as far as they are needed."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.graph = Graph.of(steps)
        self.rows = {name: TaskTally(TaskState.RUNNING) for name in self.graph.first}
        self.flow = FlowTally(left=len(steps))
        self.read = 0

    def end(self, over: Mapping[str, TaskState]) -> set[str]:
        wanted = {*over, *(it for name in over for it in self.graph.successors[name])}
        step = advance(self.graph, self.flow, self._read(wanted), over)
        if step is None:
            step = advance(self.graph, self.flow, self._read(self.graph.tasks), over)
        assert step is not None
        self.flow = step.flow
        self.rows |= step.tasks
        return set(step.begun)

    def _read(self, names: Mapping[str, object] | set[str]) -> dict[str, TaskTally]:
        self.read += len(names)
        return {name: self.rows.get(name, TaskTally()) for name in names}

    @property
    def states(self) -> dict[str, str]:
        return {name: str(self.rows.get(name, TaskTally()).state) for name in self.graph.tasks}


def compare(seed: int) -> None:
    """Run one random flow to its end in a random order, in the product and in the oracle."""
    rng = random.Random(seed)
    tasks = random_flow(rng)
    run, oracle = KeptRun([Step.of(it) for it in tasks]), OracleRun(tasks)
    running = oracle.begin()
    assert running == set(run.graph.first)
    while running:
        if rng.random() < 0.02:
            run.flow = run.flow._replace(is_stopped=True)
            oracle.cancel()
        some = rng.sample(sorted(running), rng.randint(1, min(len(running), 4)))
        over = {name: rng.choice(ENDS) for name in some}
        begun = oracle.end({name: str(state) for name, state in over.items()})
        assert run.end(over) == begun, f"seed {seed}"
        running = running - over.keys() | begun
        assert run.states == oracle.states, f"seed {seed}"
        assert run.flow.left == sum(it in ("waiting", "running") for it in oracle.states.values())
    assert oracle.state is not None
    assert str(run.flow.run_state) == oracle.state, f"seed {seed}"


def test_random_flows_go_as_the_oracle_says() -> None:
    for seed in range(FLOWS):
        compare(seed)


def skips_early(right: Callable[..., TaskState]) -> Callable[..., TaskState]:
    """As soon as something has failed, whatever still executes."""

    def wrong(graph: Graph, flow: FlowTally, name: str, tally: TaskTally) -> TaskState:
        early = tally.failed and graph.tasks[name].join is Join.ALL_SUCCEEDED
        return TaskState.SKIPPED if early else right(graph, flow, name, tally)

    return wrong


MUTANTS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "_decided": skips_early,
    "_ends_run": lambda right: lambda graph, name, state: False,
    "_counted": lambda right: lambda flow, *of: right(flow, *of)._replace(failed=flow.failed),
    "_holds": lambda right: lambda join, tally, needs: tally.succeeded == needs,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_oracle_catches_a_wrong_rule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_module, name, MUTANTS[name](getattr(flow_module, name)))
    with pytest.raises(AssertionError):
        test_random_flows_go_as_the_oracle_says()


DIAMOND = (Step("s"), Step("a", ("s",)), Step("b", ("a",)), Step("c", ("a",)), Step("d", ("b", "c")))


@pytest.mark.parametrize("order", [[{"b", "c"}], [{"b"}, {"c"}], [{"c"}, {"b"}]])
def test_the_last_of_a_diamond_begins_once_whichever_ends_first(order: list[set[str]]) -> None:
    """V3.1: also if both end together."""
    run = KeptRun(DIAMOND)
    assert run.end({"s": TaskState.SUCCEEDED}) == {"a"}
    assert run.end({"a": TaskState.SUCCEEDED}) == {"b", "c"}
    begun = [run.end(dict.fromkeys(together, TaskState.SUCCEEDED)) for together in order]
    assert begun == [set()] * (len(order) - 1) + [{"d"}]
    assert run.end({"d": TaskState.SUCCEEDED}) == set()
    assert run.flow.run_state is RunState.SUCCEEDED


def test_what_cleans_up_waits_for_what_still_executes() -> None:
    """A task that will be skipped is not, as long as something that it needs goes on."""
    work = (Step("a", on_failure=OnFailure.END), Step("b"), Step("c", ("a", "b")), Step("d", ("c",)))
    run = KeptRun([*work, Step("clean", ("c", "d"), Join.ALWAYS)])
    assert run.end({"a": TaskState.FAILED}) == set()
    assert run.states["c"] == "waiting"
    assert run.end({"b": TaskState.SUCCEEDED}) == {"clean"}
    assert (run.states["c"], run.states["d"]) == ("skipped", "skipped")
    run.end({"clean": TaskState.SUCCEEDED})
    assert run.flow.run_state is RunState.FAILED


def test_an_end_costs_as_much_as_there_are_tasks_that_wait_for_it() -> None:
    """A wide join is read as one row for each end, not as all that it needs."""
    wide = [Step(f"w{n}", ("s",)) for n in range(1000)]
    run = KeptRun([Step("s"), *wide, Step("join", tuple(it.name for it in wide))])
    run.end({"s": TaskState.SUCCEEDED})
    run.read = 0
    for it in wide:
        begun = run.end({it.name: TaskState.SUCCEEDED})
    assert begun == {"join"}
    assert run.read == 2 * len(wide)


def test_five_thousand_tasks_in_a_row_are_skipped_together() -> None:
    chain = [Step("t0"), *(Step(f"t{n}", (f"t{n - 1}",)) for n in range(1, 5000))]
    run = KeptRun(chain)
    assert run.end({"t0": TaskState.FAILED}) == set()
    assert run.flow.run_state is RunState.FAILED
    assert set(run.states.values()) == {"failed", "skipped"}


def test_a_cycle_is_named_in_the_order_of_its_needs() -> None:
    needs = {"in": (), "a": ("in", "b"), "b": ("c",), "c": ("a",), "out": ("c",)}
    assert cycle_of(needs) == ["a", "b", "c"]
    assert cycle_of({"self": ("self",)}) == ["self"]
    assert cycle_of({it.name: it.needs for it in DIAMOND}) == []


def test_a_cycle_at_the_end_of_a_long_chain_is_found() -> None:
    names = [f"t{n}" for n in range(5000)]
    needs = dict(zip(names, [*((it,) for it in names[1:]), ("t4998",)], strict=True))
    assert cycle_of(needs) == ["t4998", "t4999"]
