"""Dispatch: make rounds while this node is the one that makes them, and step in when that one does not.

    look (one short read) ──nothing to do──> rest, longer and longer
       │ this node made the last round, and something arrived or fell due;
       │ or nobody did; or what arrived has waited for too long
       v
    round ──> hand this node's grant to its executor, others read theirs ──> look

Any node may make any round: the lock decides. The one that made the last knows what waits, so it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rota.config import DispatchConfig
from rota.core.dispatch.board import Rounds
from rota.logger import log
from rota.loops.executor import Executor
from rota.loops.loop import Loop
from rota.loops.member import Identity
from rota.model.dispatch import Pulse, Round
from rota.ports import Clock, Store
from rota.transactions.round import LastRound, dispatch

STEP_IN_US = 2_000_000
"""How long news may wait before others make a round instead of the node that made the last: rebuilding costs more than
waiting for one that is only slow."""
ASIDE_S = 5.0
"""How long a node leaves the rounds to others that cannot reach who could run what waits: longer than they wait before
they step in."""
SHORTEST_S = 0.002
QUIET_S = 15.0
"""How long a node rests that would be told of news, and has none."""
UNTOLD_US = 250_000
"""Work that has waited for so long, while no word came, is work of which nobody tells."""
UNTOLD_S = 600.0
"""For how long a node then looks as often as one that nobody tells of anything."""


@dataclass(eq=False, repr=False)
class Dispatcher(Loop):
    """Makes rounds. Two that do so at once cost one a wait for the lock and a rebuilt board, nothing else."""

    store: Store
    clock: Clock
    config: DispatchConfig
    identity: Identity
    executor: Executor | None
    hears: bool = False
    is_called: bool = False
    quiet_look_s: float = QUIET_S
    """How long to rest where nothing waits and any news would be told; what falls due ends it earlier."""
    on_round: Callable[[Round], None] | None = None
    _heard: bool = True
    """Whether any word came since the last look."""
    _looked_us: int = 0
    _untold_until_s: float = 0.0
    _board: Rounds = field(default_factory=Rounds)
    _told: bool = True
    _freed: bool = False
    _due_s: float | None = None
    _aside_until_s: float = 0.0
    given: int = 0
    """Items given by rounds of this node."""
    _pause_s: float = SHORTEST_S

    def wake(self) -> None:
        """Something arrived, or may have."""
        self._told = self._heard = True
        super().wake()

    def look(self) -> None:
        """Something may have arrived, somebody says; a look is cheaper than a round."""
        self._heard = True
        super().wake()

    def leave_out(self, node_ids: frozenset[int]) -> None:
        """These cannot be reached from here (S1.16); all others can be again. Never this node itself (A1.9)."""
        self._board.unreachable = node_ids
        self.wake()

    def freed(self) -> None:
        """Seats were given back. That is no hurry unless something waits for one: the next round learns of it."""
        self._freed = self._heard = True
        if self._board.is_pressed:
            super().wake()

    async def once(self) -> float:
        node_id = self.identity.id
        if node_id is None:
            self._board.forget()
            return 0.2
        told, self._told = self._told, False
        if self._is_holder and (told or self._can_fill() or self._is_due()):
            return await self._make_round(node_id, LastRound(node_id, self._board.round))
        heard, self._heard = self._heard, False
        pulse = await self.store.pulse(node_id)
        self._notice_silence(pulse, heard=heard)
        if self.executor is not None and pulse.granted > self.executor.last_round:
            self.executor.look()
            self._pause_s = SHORTEST_S
        if self._must_act(pulse, node_id):
            return await self._make_round(node_id, LastRound(pulse.holder, pulse.round))
        return self._rest_s(pulse)

    def _notice_silence(self, pulse: Pulse, *, heard: bool) -> None:
        """Callers may be unable to reach this node, or belong to a release that tells nothing. Then it must not rest
        for long: it cost one start a wait, and is to cost no second one."""
        looked_us, self._looked_us = self._looked_us, pulse.now_us
        if heard or not (self.hears or self.is_called) or pulse.arrived_us is None:
            return
        if looked_us < pulse.arrived_us < pulse.now_us - UNTOLD_US:
            if self._trusts_words:
                log.warning("dispatcher.not_woken", for_s=UNTOLD_S, reason="work arrived of which no word came")
            self._untold_until_s = self.clock.monotonic() + UNTOLD_S

    @property
    def _trusts_words(self) -> bool:
        return self.clock.monotonic() >= self._untold_until_s

    @property
    def _is_holder(self) -> bool:
        return self._board.epoch is not None

    def _can_fill(self) -> bool:
        """Whether seats were given back that something waits for."""
        return self._freed and self._board.is_pressed

    def _is_due(self) -> bool:
        return self._due_s is not None and self.clock.monotonic() >= self._due_s

    def _must_act(self, pulse: Pulse, node_id: int) -> bool:
        if self.clock.monotonic() < self._aside_until_s:
            return False
        if pulse.holder == node_id or pulse.holder is None:
            fell_due = pulse.next_us is not None and pulse.next_us <= pulse.now_us
            return not self._is_holder or pulse.arrived_us is not None or fell_due
        if self._is_holder:
            self._board.forget()  # another node made a round
        patience_us = STEP_IN_US * (1 + self.clock.chance() / 2)
        waits = [at for at in (pulse.arrived_us, pulse.next_us) if at is not None]
        return any(pulse.now_us - at > patience_us for at in waits)

    async def _make_round(self, node_id: int, last: LastRound) -> float:
        self._freed = False
        done = await dispatch(self.store, node_id, self._board, batch_max=self.config.batch_max, last=last)
        if not self._is_holder:
            return 0.0  # another node was faster: look what it has done
        self.given += done.given
        self._hand_over(done, node_id)
        if self.on_round is not None:
            self.on_round(done)
        if done.given or done.arrivals:
            self._pause_s = SHORTEST_S
        self._due_s = None
        if self._board.is_cut_off:
            self._step_aside()
        elif done.next_us is not None:
            self._due_s = self.clock.monotonic() + max(done.next_us - done.now_us, 0) / 1_000_000
        return 0.0 if done.more or self._can_fill() else self._rest_s()

    def _step_aside(self) -> None:
        """Let others make the rounds: the one that could run what waits always reaches itself (A1.9)."""
        log.info("dispatcher.stepped_aside", for_s=ASIDE_S, reason="cannot reach who could run what waits")
        self._aside_until_s = self.clock.monotonic() + ASIDE_S
        self._board.forget()

    def _hand_over(self, done: Round, node_id: int) -> None:
        if self.executor is None:
            return
        if done.took_over:
            self.executor.look()  # rounds of others may have given it something that it has not read
        elif node_id in done.grants:
            self.executor.take(node_id, done.grants[node_id])

    def _rest_s(self, pulse: Pulse | None = None) -> float:
        """Longer and longer while nothing happens. Where the store can tell of news, a look is only a precaution; and
        where nothing waits, nobody need look for long."""
        idle_s, now_s = self.config.idle_s, self.clock.monotonic()
        waits = self._board.is_pressed or (pulse is not None and pulse.arrived_us is not None)
        longest_s = self.quiet_look_s if self._trusts_words and not waits else idle_s * 2.5
        if self.hears:
            rest_s = longest_s
        else:
            most_s = longest_s if self.is_called and self._trusts_words and not waits else idle_s
            rest_s, self._pause_s = min(self._pause_s, most_s), min(self._pause_s * 1.5, most_s)
        if self._is_holder and self._due_s is not None:
            rest_s = min(rest_s, max(self._due_s - now_s, 0.0))
        elif pulse is not None and pulse.next_us is not None:  # what another node's rounds will find due, or should
            rest_s = min(rest_s, max(pulse.next_us - pulse.now_us, 0) / 1_000_000 + idle_s * 2.5)
        if now_s < self._aside_until_s:
            rest_s = min(rest_s, self._aside_until_s - now_s)
        return rest_s
