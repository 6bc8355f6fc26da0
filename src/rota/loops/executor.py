"""Execute what rounds gave to this node: read the grants, load the attempts, hand them to the runner.

The executor never runs user code and never decides what becomes of an attempt. Grants of later rounds than the last
one read are all it needs: rounds are made one after the other.
"""

from __future__ import annotations

import structlog

from rota.config import ExecutorConfig
from rota.core.advance import Advance
from rota.core.dispatch.versions import handed_back, has_reader
from rota.loops.in_hand import AttemptsInHand
from rota.loops.loader import Loader
from rota.loops.loop import Loop
from rota.loops.member import Identity
from rota.model.dispatch import Grant, Granted
from rota.ports import Clock, Runner, Store
from rota.transactions.finish import finish

CANCEL_LOOK_S = 1.0
IDLE_S = 3600.0

log = structlog.get_logger()


class Executor(Loop):
    """Starts what this node was given, and stops what was cancelled."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        config: ExecutorConfig,
        identity: Identity,
        runner: Runner,
        in_hand: AttemptsInHand,
        loader: Loader,
        *,
        version: str = "",
    ) -> None:
        super().__init__(clock)
        self._store = store
        self._config = config
        self._identity = identity
        self._runner = runner
        self._in_hand = in_hand
        self._loader = loader
        self._version = version
        self._handed: list[Grant] = []
        self._unread = True
        self._unreadable: list[tuple[Granted, Grant]] = []
        self._beginning = False
        self._last = 0
        self._as_id: int | None = None
        self._looked_s = 0.0
        self.begun = 0
        """Attempts begun by this executor."""

    @property
    def last_round(self) -> int:
        return self._last

    @property
    def is_beginning(self) -> bool:
        """Whether grants were read that are not among the attempts in hand yet."""
        return bool(self._handed) or self._beginning

    def take(self, node_id: int, grant: Grant) -> None:
        """Be handed the grant of the round that follows all that were read. Not what an earlier incarnation got."""
        if node_id == self._as_id:
            self._handed.append(grant)
        elif node_id == self._identity.id:
            self._unread = True
        self.wake()

    def look(self) -> None:
        """There are grants to be read."""
        self._unread = True
        self.wake()

    async def once(self) -> float:
        if self._identity.id is None:
            return 0.2
        if self._identity.id != self._as_id:  # a new incarnation begins with nothing
            self._as_id, self._last, self._handed, self._unread = self._identity.id, 0, [], True
            self._unreadable = []
        self._beginning = True
        try:
            await self._begin(self._identity.id, await self._grants(self._identity.id))
        finally:
            self._beginning = False
        await self._hand_back(self._identity.id)
        await self._cancel()
        if self._unread or self._handed:
            return 0.0
        return CANCEL_LOOK_S if self._in_hand.attempts else IDLE_S

    async def all_in_hand(self) -> None:
        """Wait until all that this node was given is in hand."""
        while self._is_reading:
            await self.pause()

    async def drained(self) -> None:
        """Wait until this node, which is given nothing more, has nothing in hand."""
        while self._in_hand.attempts or self._is_reading:
            await self._in_hand.idle.wait()
            await self.pause()

    @property
    def _is_reading(self) -> bool:
        return self._identity.id is not None and (self._unread or self.is_beginning)

    async def pause(self) -> None:
        await self._clock.sleep(0.02)

    async def abandon(self) -> None:
        """End everything, hold or not, and see it gone; what others have not taken yet goes back as lost."""
        await self._runner.close()
        await self._in_hand.idle.wait()
        await self._runner.open(self._in_hand)

    async def _grants(self, node_id: int) -> list[Grant]:
        handed, self._handed = self._handed, []
        if self._unread:
            self._unread = False
            try:
                handed = list(await self._store.granted(node_id, self._last))
            except BaseException:
                self._unread = True
                raise
        by_round = {grant.round: grant for grant in handed if grant.round > self._last}  # one may have come both ways
        fresh = [by_round[number] for number in sorted(by_round)]
        if fresh:
            self._last = fresh[-1].round
        return fresh

    async def _begin(self, node_id: int, grants: list[Grant]) -> None:
        if not grants:
            return
        try:
            loaded = await self._loader.attempts(grants)
        except BaseException:
            self._handed = [*grants, *self._handed]
            self._last = grants[0].round - 1
            raise
        if self._identity.id != node_id:
            return  # given up meanwhile: these items are no longer this node's
        self._unreadable += loaded.unread
        attempts = self._in_hand.add(loaded.attempts)
        self._runner.begin(attempts)
        self.begun += len(attempts)

    async def _hand_back(self, node_id: int) -> None:
        """Give back what this release cannot read, for a newer node; what no living node can read ends."""
        if not self._unreadable:
            return
        newer = has_reader(await self._store.nodes(), self._config.group, self._version)
        name, unread = self._identity.name, self._unreadable
        ends = handed_back(unread, node=name, node_id=node_id, version=self._version, to_newer=newer)
        await finish(self._store, ends, rule=Advance())
        self._unreadable = []
        items = [end.item_id for end in ends]
        log.error("item.unreadable", items=items[:20], count=len(items), to_newer=newer)

    async def _cancel(self) -> None:
        """Now and then, see which of the attempts in hand were asked to stop."""
        now_s = self._clock.monotonic()
        if not self._in_hand.attempts or now_s - self._looked_s < CANCEL_LOOK_S:
            return
        self._looked_s = now_s
        asked = await self._store.asked_to_cancel(list(self._in_hand.attempts))
        if asked:
            self._runner.cancel(asked)
