"""All trees of one agent: starts them, moves their common deadline, and lets none outlive it.

It makes no policy. It never forks: the zygote does, so the agent may have threads.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from rota import system
from rota.runners.boundary import cgroup, kernel
from rota.runners.boundary.errors import BoundaryFailed, CannotStart, DeadlinePassed, ZygoteGone
from rota.runners.boundary.kinds import require, strongest
from rota.runners.boundary.link import ZygoteLink
from rota.runners.boundary.order import Ends, TreeSpec, write_order
from rota.runners.boundary.promises import BoundaryKind
from rota.runners.boundary.records import Records
from rota.runners.boundary.switch import Switch, shared_deadline
from rota.runners.boundary.tree import Tree
from rota.waiting import first_of

_START_S = 20.0
_CLOSE_S = 3.0
_LOOK_S = 1.0
"""How often it looks whether the supervisors can work."""


class Yard:
    """The trees of one agent. Until the first `renew`, nothing may start."""

    def __init__(self, kind: BoundaryKind, records: Records, switch: int) -> None:
        self.kind = kind
        self._records = records
        self._switch_fd = switch
        self._switch = Switch(switch, writable=True)
        self._zygote: ZygoteLink | None = None
        self._hatching = asyncio.Lock()
        self._trees: set[Tree] = set()
        self._closed = False
        self._look_later = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    @classmethod
    async def open(cls, kind: BoundaryKind | None = None, *, state_dir: Path, node: str) -> Self:
        """Make a yard of that kind of boundary, or of the strongest that this host lets us make."""
        kind = kind or strongest()
        require(kind)
        kernel.hide()
        yard = cls(kind, Records.begin(state_dir, node, kind), shared_deadline())
        try:
            await yard._live_zygote()
        except BaseException:
            await yard.close()
            raise
        return yard

    @property
    def trees(self) -> frozenset[Tree]:
        """Those not yet seen gone."""
        return frozenset(self._trees)

    @property
    def zygote_pid(self) -> int | None:
        return self._zygote.pid if self._zygote else None

    @property
    def folder(self) -> Path:
        """Where this agent writes down its trees."""
        return self._records.folder

    def renew(self, deadline: float) -> None:
        """Move the deadline, in seconds of the clock of the switch. At the deadline plus its `hold_s`, each tree is
        killed by its own switch, whatever the state of the agent."""
        self._switch.renew(int(deadline * 1e9))

    async def start(self, spec: TreeSpec) -> Tree:
        """Start a tree. Raises `CannotStart`, `DeadlinePassed` or `BoundaryFailed`, and then nothing of it ran."""
        self._check(spec)
        zygote = await self._live_zygote()
        try:
            return await self._start_by(zygote, spec)
        except ZygoteGone:
            await zygote.close()
        return await self._start_by(await self._live_zygote(), spec)

    async def close(self) -> None:
        """Kill what is left, see it gone, and end the zygote."""
        self._closed = True
        self._look_later.cancel()
        ends = [asyncio.ensure_future(tree.ended()) for tree in self.trees]
        for tree in self.trees:
            tree.kill()
        if ends:
            await asyncio.wait(ends, timeout=_CLOSE_S)  # who waits for a zygote that hangs, waits until that is gone
        if self._zygote:
            await self._zygote.close()
        await asyncio.gather(*ends)
        if self._switch_fd >= 0:
            os.close(self._switch_fd)
            self._switch_fd = -1
        # A group that cannot be removed holds somebody who left a weak boundary: a sweep must find it.
        if all(cgroup.remove(group, patience_s=0) for group in self._records.agent.groups):
            self._records.end()

    def _check(self, spec: TreeSpec) -> None:
        if self._closed:
            raise BoundaryFailed(f"{spec.label} was not started: the yard is closed")
        if not spec.argv or "\0" in "".join((*spec.argv, *spec.env, *spec.env.values())):
            raise CannotStart(f"{spec.label}: a command line has at least a program, and no NUL anywhere")
        if self._switch.left_s() <= 0:
            raise DeadlinePassed(f"{spec.label} was not started: the deadline of this node has passed")

    async def _live_zygote(self) -> ZygoteLink:
        async with self._hatching:
            if self._zygote is None or self._zygote.is_dead:
                self._zygote = await ZygoteLink.start(self.kind, self._switch_fd)
            return self._zygote

    async def _start_by(self, zygote: ZygoteLink, spec: TreeSpec) -> Tree:
        with ExitStack() as theirs:
            try:
                tree, descriptors = self._plant(spec, theirs)
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
                        self._records.write_anew(tree.record())  # with its main process, which only now is known
            except TimeoutError as error:
                tree.uproot()
                raise BoundaryFailed(f"{spec.label} was not started within {_START_S:.0f} s") from error
            except BaseException:
                tree.uproot()
                raise
        return tree

    def _plant(self, spec: TreeSpec, theirs: ExitStack) -> tuple[Tree, tuple[int, ...]]:
        """The agent's side of a new tree, and the descriptors of the other side, which `theirs` closes here."""
        name = self._records.new_name()
        order = write_order(spec, self.kind, name, self._records.path(name))
        ends = Ends(order.content, theirs, channel=spec.channel)
        tree = Tree(label=spec.label, name=name, kind=self.kind, order=order, ends=ends, on_gone=self._on_gone)
        self._trees.add(tree)
        return tree, ends.far

    def _look(self) -> None:
        if not system.IS_LINUX:
            return  # it would take a run of `ps` each time: a supervisor that was stopped is not noticed
        for tree in self.trees:
            tree.look()
        if self._zygote is not None and self.kind is not BoundaryKind.NAMESPACE:  # no tree there can reach it
            self._zygote.look()
        self._look_later = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _on_gone(self, tree: Tree) -> None:
        self._trees.discard(tree)
        if tree.surely_gone:  # else a sweep should look again
            self._records.remove(tree.name)
