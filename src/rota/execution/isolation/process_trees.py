"""All process trees of one agent: starts them, renews their common deadline, and kills them when it closes.

It decides nothing. It never forks: the zygote does, so the agent may have threads.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from rota import system
from rota.errors import BoundaryFailed, CannotStart, DeadlinePassed, ZygoteGone
from rota.execution.isolation import cgroup, kernel
from rota.execution.isolation.availability import require, strongest
from rota.execution.isolation.dead_mans_switch import DeadMansSwitch, shared_deadline
from rota.execution.isolation.process_tree import ProcessTree
from rota.execution.isolation.promises import BoundaryKind
from rota.execution.isolation.records import Records
from rota.execution.isolation.tree_order import TreeDescriptors, TreeSpec, write_order
from rota.execution.isolation.zygote_link import ZygoteLink
from rota.waiting import first_of

_START_S = 20.0
_CLOSE_S = 3.0
_CHECK_S = 1.0
"""How often it checks that no supervisor is stopped."""


class ProcessTrees:
    """The trees of one agent. Until the first `renew`, nothing may start."""

    def __init__(self, kind: BoundaryKind, records: Records, switch: int) -> None:
        self.kind = kind
        self._records = records
        self._switch_fd = switch
        self._switch = DeadMansSwitch(switch, writable=True)
        self._zygote: ZygoteLink | None = None
        self._zygote_starting = asyncio.Lock()
        self._trees: set[ProcessTree] = set()
        self._closed = False
        self._check_later = asyncio.get_running_loop().call_later(_CHECK_S, self._check)

    @classmethod
    async def open(cls, kind: BoundaryKind | None = None, *, state_dir: Path, node: str) -> Self:
        """Prepare to start trees in that kind of boundary, or in the strongest that this host lets us make."""
        kind = kind or strongest()
        require(kind)
        kernel.hide()
        process_trees = cls(kind, Records.begin(state_dir, node, kind), shared_deadline())
        try:
            await process_trees._live_zygote()
        except BaseException:
            await process_trees.close()
            raise
        return process_trees

    @property
    def live(self) -> frozenset[ProcessTree]:
        return frozenset(self._trees)

    @property
    def zygote_pid(self) -> int | None:
        return self._zygote.pid if self._zygote else None

    @property
    def folder(self) -> Path:
        return self._records.folder

    def renew(self, deadline: float) -> None:
        """Move the deadline, in seconds of the clock of the switch. At the deadline plus its `hold_s`, each tree is
        killed by its own switch, whatever the state of the agent."""
        self._switch.renew(int(deadline * 1e9))

    async def start(self, spec: TreeSpec) -> ProcessTree:
        """Start a tree. Raises `CannotStart`, `DeadlinePassed` or `BoundaryFailed`, and then nothing of it ran."""
        self._check_spec(spec)
        zygote = await self._live_zygote()
        try:
            return await self._start_by(zygote, spec)
        except ZygoteGone:
            await zygote.close()
        return await self._start_by(await self._live_zygote(), spec)

    async def close(self) -> None:
        """Kill what is left, wait until it is gone, and end the zygote."""
        self._closed = True
        self._check_later.cancel()
        ends = [asyncio.ensure_future(tree.ended()) for tree in self.live]
        for tree in self.live:
            tree.kill()
        if ends:
            await asyncio.wait(ends, timeout=_CLOSE_S)  # a tree that waits for a hanging zygote ends with it
        if self._zygote:
            await self._zygote.close()
        await asyncio.gather(*ends)
        if self._switch_fd >= 0:
            os.close(self._switch_fd)
            self._switch_fd = -1
        # A group that cannot be removed holds a process that left a weak boundary: a sweep must find it.
        if all(cgroup.remove(group, patience_s=0) for group in self._records.agent.groups):
            self._records.end()

    def _check_spec(self, spec: TreeSpec) -> None:
        if self._closed:
            raise BoundaryFailed(f"{spec.label} was not started: this node is stopping")
        if not spec.argv or "\0" in "".join((*spec.argv, *spec.env, *spec.env.values())):
            raise CannotStart(f"{spec.label}: a command line has at least a program, and no NUL anywhere")
        if self._switch.left_s() <= 0:
            raise DeadlinePassed(f"{spec.label} was not started: the deadline of this node has passed")

    async def _live_zygote(self) -> ZygoteLink:
        async with self._zygote_starting:
            if self._zygote is None or self._zygote.is_dead:
                self._zygote = await ZygoteLink.start(self.kind, self._switch_fd)
            return self._zygote

    async def _start_by(self, zygote: ZygoteLink, spec: TreeSpec) -> ProcessTree:
        with ExitStack() as theirs:
            try:
                tree, descriptors = self._prepare(spec, theirs)
            except OSError as error:
                raise BoundaryFailed(f"{spec.label} was not started: {error}") from error
            try:
                async with asyncio.timeout(_START_S):
                    await zygote.order(descriptors)
                    if not system.IS_LINUX:  # macOS may lose descriptors that their sender closes too early
                        await first_of(tree.forked(), zygote.dead())
                    theirs.close()
                    await tree.forked()
                    self._records.write(tree.record())
                    await tree.go()
                    if not system.IS_LINUX and tree in self._trees:
                        self._records.rewrite(tree.record())  # with its main process, which only now is known
            except TimeoutError as error:
                tree.abandon()
                raise BoundaryFailed(f"{spec.label} was not started within {_START_S:.0f} s") from error
            except BaseException:
                tree.abandon()
                raise
        return tree

    def _prepare(self, spec: TreeSpec, theirs: ExitStack) -> tuple[ProcessTree, tuple[int, ...]]:
        """The agent's side of a new tree, and the descriptors of the other side, which `theirs` closes here."""
        name = self._records.new_name()
        order = write_order(spec, self.kind, name, self._records.path(name))
        ends = TreeDescriptors(order.content, theirs, channel=spec.channel)
        tree = ProcessTree(label=spec.label, name=name, kind=self.kind, order=order, ends=ends, on_gone=self._on_gone)
        self._trees.add(tree)
        return tree, ends.far

    def _check(self) -> None:
        if not system.IS_LINUX:
            return  # it would take a run of `ps` each time: a supervisor that was stopped is not noticed
        for tree in self.live:
            tree.check_supervisor()
        if self._zygote is not None and self.kind is not BoundaryKind.NAMESPACE:  # no tree there can reach it
            self._zygote.check_stopped()
        self._check_later = asyncio.get_running_loop().call_later(_CHECK_S, self._check)

    def _on_gone(self, tree: ProcessTree) -> None:
        self._trees.discard(tree)
        if tree.surely_gone:  # else a sweep should look again
            self._records.remove(tree.name)
