"""Execute what rounds gave to this node: read the grants, load the attempts, hand them to the runner.

The executor never runs user code and never decides what becomes of an attempt. Grants of later rounds than the last
one read are all it needs: rounds are made one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.config import ExecutorConfig
from rota.core.advance import Advance
from rota.core.dispatch.versions import handed_back, has_reader
from rota.logger import log
from rota.loops.in_hand import AttemptsInHand
from rota.loops.loader import Loader
from rota.loops.loop import Loop
from rota.loops.member import Identity
from rota.model.dispatch import Grant, Granted
from rota.ports import Clock, Runner, Store
from rota.transactions.finish import finish

CANCEL_LOOK_S = 1.0
IDLE_S = 3600.0


@dataclass(eq=False, repr=False)
class Executor(Loop):
    """Starts what this node was given, and stops what was cancelled."""

    store: Store
    clock: Clock
    config: ExecutorConfig
    identity: Identity
    runner: Runner
    in_hand: AttemptsInHand
    loader: Loader
    version: str = ""
    _handed: list[Grant] = field(default_factory=list)
    _unread: bool = True
    _unreadable: list[tuple[Granted, Grant]] = field(default_factory=list)
    _beginning: bool = False
    last_round: int = 0
    _as_id: int | None = None
    _looked_s: float = 0.0
    begun: int = 0
    """Attempts begun by this executor."""

    @property
    def is_beginning(self) -> bool:
        """Whether grants were read that are not among the attempts in hand yet."""
        return bool(self._handed) or self._beginning

    def take(self, node_id: int, grant: Grant) -> None:
        """Be handed the grant of the round that follows all that were read. Not what an earlier incarnation got."""
        if node_id == self._as_id:
            self._handed.append(grant)
        elif node_id == self.identity.id:
            self._unread = True
        self.wake()

    def look(self) -> None:
        """There are grants to be read."""
        self._unread = True
        self.wake()

    async def once(self) -> float:
        if self.identity.id is None:
            return 0.2
        if self.identity.id != self._as_id:  # a new incarnation begins with nothing
            self._as_id, self.last_round, self._handed, self._unread = self.identity.id, 0, [], True
            self._unreadable = []
        self._beginning = True
        try:
            await self._begin(self.identity.id, await self._grants(self.identity.id))
        finally:
            self._beginning = False
        await self._hand_back(self.identity.id)
        await self._cancel()
        if self._unread or self._handed:
            return 0.0
        return CANCEL_LOOK_S if self.in_hand.attempts else IDLE_S

    async def all_in_hand(self) -> None:
        """Wait until all that this node was given is in hand."""
        while self._is_reading:
            await self.pause()

    async def drained(self) -> None:
        """Wait until this node, which is given nothing more, has nothing in hand."""
        while self.in_hand.attempts or self._is_reading:
            await self.in_hand.idle.wait()
            await self.pause()

    @property
    def _is_reading(self) -> bool:
        return self.identity.id is not None and (self._unread or self.is_beginning)

    async def pause(self) -> None:
        await self.clock.sleep(0.02)

    async def abandon(self) -> None:
        """End everything, hold or not, and see it gone; what others have not taken yet goes back as lost."""
        await self.runner.close()
        await self.in_hand.idle.wait()
        await self.runner.open(self.in_hand)

    async def _grants(self, node_id: int) -> list[Grant]:
        handed, self._handed = self._handed, []
        if self._unread:
            self._unread = False
            try:
                handed = list(await self.store.granted(node_id, self.last_round))
            except BaseException:
                self._unread = True
                raise
        by_round = {
            grant.round: grant for grant in handed if grant.round > self.last_round
        }  # one may have come both ways
        fresh = [by_round[number] for number in sorted(by_round)]
        if fresh:
            self.last_round = fresh[-1].round
        return fresh

    async def _begin(self, node_id: int, grants: list[Grant]) -> None:
        if not grants:
            return
        try:
            loaded = await self.loader.attempts(grants)
        except BaseException:
            self._handed = [*grants, *self._handed]
            self.last_round = grants[0].round - 1
            raise
        if self.identity.id != node_id:
            return  # given up meanwhile: these items are no longer this node's
        self._unreadable += loaded.unread
        attempts = self.in_hand.add(loaded.attempts)
        self.runner.begin(attempts)
        self.begun += len(attempts)

    async def _hand_back(self, node_id: int) -> None:
        """Give back what this release cannot read, for a newer node; what no living node can read ends."""
        if not self._unreadable:
            return
        newer = has_reader(await self.store.nodes(), self.config.group, self.version)
        name, unread = self.identity.name, self._unreadable
        ends = handed_back(unread, node=name, node_id=node_id, version=self.version, to_newer=newer)
        await finish(self.store, ends, rule=Advance())
        self._unreadable = []
        items = [end.item_id for end in ends]
        log.error("item.unreadable", items=items[:20], count=len(items), to_newer=newer)

    async def _cancel(self) -> None:
        """Now and then, see which of the attempts in hand were asked to stop."""
        now_s = self.clock.monotonic()
        if not self.in_hand.attempts or now_s - self._looked_s < CANCEL_LOOK_S:
            return
        self._looked_s = now_s
        asked = await self.store.asked_to_cancel(list(self.in_hand.attempts))
        if asked:
            self.runner.cancel(asked)
