"""Graphs: which tasks of a job need which others, and under what condition one begins when those are over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Join(StrEnum):
    """What must have become of the tasks that a task needs. It is skipped when they are over and it cannot begin."""

    ALL_SUCCEEDED = "all_succeeded"
    ALL_DONE = "all_done"
    ONE_SUCCEEDED = "one_succeeded"
    """It begins with the first of them that succeeds; the others go on."""
    ONE_FAILED = "one_failed"
    """It begins with the first of them that fails; the others go on."""
    NONE_FAILED = "none_failed"
    """All are over, and have succeeded or were skipped."""
    ALWAYS = "always"
    """All are over, also if the run is ending because something failed: for what cleans up."""


class OnFailure(StrEnum):
    """What the failure of a task means for its run."""

    END = "end"
    """Nothing else begins but what cleans up (`Join.ALWAYS`). What executes goes on to its own end."""
    CONTINUE = "continue"
    """Tasks that do not depend on it go on; the run fails when all is over."""
    IGNORE = "ignore"
    """The same, and the run does not fail for it."""


class GraphTask(Protocol):
    """What a graph must know of a task."""

    @property
    def name(self) -> str: ...

    @property
    def needs(self) -> Sequence[str]: ...

    @property
    def join(self) -> Join: ...

    @property
    def on_failure(self) -> OnFailure: ...


@dataclass(frozen=True, slots=True)
class Graph:
    """Tasks by their names, who needs each of them, and their places in the order in which they were defined."""

    tasks: Mapping[str, GraphTask]
    successors: Mapping[str, Sequence[str]]
    places: Mapping[str, int]

    @classmethod
    def of(cls, tasks: Sequence[GraphTask]) -> Graph:
        """Of tasks without a cycle, all of whose needs are there."""
        successors: dict[str, list[str]] = {task.name: [] for task in tasks}
        for task in tasks:
            for name in task.needs:
                successors[name].append(task.name)
        places = {task.name: place for place, task in enumerate(tasks)}
        return cls({task.name: task for task in tasks}, successors, places)

    @property
    def first(self) -> list[str]:
        """The tasks that begin with the run."""
        return [name for name, task in self.tasks.items() if not task.needs]


def cycle_of(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Tasks of which each needs the next, and the last the first; empty if there are none. A stack of one's own: graphs
    may be deeper than Python's."""
    clear: set[str] = set()
    for start in needs:
        path: dict[str, Iterator[str]] = {} if start in clear else {start: iter(needs[start])}
        while path:
            name = next(reversed(path))
            following = next((it for it in path[name] if it not in clear), None)
            if following is None:
                clear.add(name)
                del path[name]
            elif following in path:
                names = list(path)
                return names[names.index(following) :]
            else:
                path[following] = iter(needs[following])
    return []
