"""Flow: which tasks of a run begin, and which are skipped, when others are over.

    waiting ──its join holds──> running ──its items are over──> succeeded, failed, cancelled
       ├──all that it needs is over, and its join does not hold──> skipped
       └──all that it needs is over, and somebody has asked to cancel the run──> cancelled

A task is counted for those that need it once, when it is over; so an end costs as much as there are tasks that wait for
it, however wide the join. What is counted is kept with the run, and changes only under the run's lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rota.model.graph import Graph, Join, OnFailure
from rota.model.states import RunState, TaskState


class TaskTally(NamedTuple):
    """A task of a run, and how many of the tasks that it needs are over, and how they ended."""

    state: TaskState = TaskState.WAITING
    succeeded: int = 0
    failed: int = 0
    """Cancelled ones too."""
    skipped: int = 0

    @property
    def over(self) -> int:
        return self.succeeded + self.failed + self.skipped

    def after(self, state: TaskState) -> TaskTally:
        """The same task, when one more that it needs is over."""
        if state is TaskState.SUCCEEDED:
            return self._replace(succeeded=self.succeeded + 1)
        if state is TaskState.SKIPPED:
            return self._replace(skipped=self.skipped + 1)
        return self._replace(failed=self.failed + 1)


class FlowTally(NamedTuple):
    """All tasks of a run together."""

    left: int
    """How many are not over."""
    failed: int = 0
    """Without those whose failure is ignored."""
    cancelled: int = 0
    is_ending: bool = False
    """Whether a task has failed that ends the run with it."""
    is_stopped: bool = False
    """Whether somebody has asked to cancel the run."""

    def may_begin(self, join: Join) -> bool:
        return not self.is_stopped and (join is Join.ALWAYS or not self.is_ending)

    @property
    def run_state(self) -> RunState | None:
        """How the run has ended; none while it goes on."""
        if self.left:
            return None
        if self.failed:
            return RunState.FAILED
        return RunState.CANCELLED if self.cancelled else RunState.SUCCEEDED


class FlowStep(NamedTuple):
    """What follows when tasks are over: how all of them stand now, the tasks that have changed, and those that begin,
    in the order of their definition."""

    flow: FlowTally
    tasks: dict[str, TaskTally]
    begun: list[str]


def advance(
    graph: Graph, flow: FlowTally, known: Mapping[str, TaskTally], over: Mapping[str, TaskState]
) -> FlowStep | None:
    """What follows when the tasks `over` have ended together. All of them count before anything is decided.

    `known` has at least these and the tasks that need them. None: a task will never begin, and the tasks that need that
    one must be known too; whoever reads them reads all, for more may follow.
    """
    flow = flow._replace(is_ending=flow.is_ending or any(_ends_run(graph, *it) for it in over.items()))
    tasks: dict[str, TaskTally] = {}
    begun: set[str] = set()
    while over:
        waiting: dict[str, TaskTally] = {}
        for name, state in over.items():
            flow = _counted(flow, graph, name, state)
            tasks[name] = (tasks.get(name) or known[name])._replace(state=state)
            for successor in graph.successors[name]:
                tally = waiting.get(successor) or tasks.get(successor) or known.get(successor)
                if tally is None:
                    return None
                if tally.state is TaskState.WAITING:
                    waiting[successor] = tally.after(state)
        now = {name: _decided(graph, flow, name, tally) for name, tally in waiting.items()}
        tasks |= {name: tally._replace(state=now[name]) for name, tally in waiting.items()}
        begun |= {name for name, state in now.items() if state is TaskState.RUNNING}
        over = {name: state for name, state in now.items() if state not in (TaskState.RUNNING, TaskState.WAITING)}
    return FlowStep(flow, tasks, sorted(begun, key=graph.places.__getitem__))


def _ends_run(graph: Graph, name: str, state: TaskState) -> bool:
    return state is TaskState.FAILED and graph.tasks[name].on_failure is OnFailure.END


def _counted(flow: FlowTally, graph: Graph, name: str, state: TaskState) -> FlowTally:
    failed = state is TaskState.FAILED and graph.tasks[name].on_failure is not OnFailure.IGNORE
    cancelled = state is TaskState.CANCELLED
    return flow._replace(left=flow.left - 1, failed=flow.failed + failed, cancelled=flow.cancelled + cancelled)


def _decided(graph: Graph, flow: FlowTally, name: str, tally: TaskTally) -> TaskState:
    """Whether a task begins, will never begin, or waits on. That it never begins is said only when all that it needs is
    over: so what cleans up after it does not begin while something before it still executes."""
    task = graph.tasks[name]
    needs = len(task.needs)
    if flow.may_begin(task.join) and _holds(task.join, tally, needs):
        return TaskState.RUNNING
    if tally.over < needs:
        return TaskState.WAITING
    return TaskState.CANCELLED if flow.is_stopped else TaskState.SKIPPED


def _holds(join: Join, tally: TaskTally, needs: int) -> bool:
    match join:
        case Join.ALL_SUCCEEDED:
            return tally.succeeded == needs
        case Join.ONE_SUCCEEDED:
            return tally.succeeded > 0
        case Join.ONE_FAILED:
            return tally.failed > 0
        case Join.NONE_FAILED:
            return tally.over == needs and tally.failed == 0
        case Join.ALL_DONE | Join.ALWAYS:
            return tally.over == needs
