"""What became of variants of placement that `rewrite.py` has made (`draw 1 24`): who sees each, or why nobody can."""

from __future__ import annotations

from dataclasses import dataclass

from tests.sim.rewrite import SEEDS


@dataclass(frozen=True, slots=True)
class Fate:
    """The simulation sees it within so many seeds; if not, a test does; if neither, there is a reason."""

    seeds: int = SEEDS
    test: str = ""
    reason: str = ""
    quick: bool = False
    """Whether it is seen in the first seeds: then it is tried in every run of the tests."""


SEEN = Fate()
QUICKLY = Fate(quick=True)
SCOPE = "tests/unit/core/placement/test_scope.py"
PLACEMENT = "tests/sim/test_placement.py"
BUILT = "tests/contract/coordinator/test_built.py"

TRIED = {
    "loops.placer.claim: ClaimPlacer._find_own: `it.session == self._session and is_job(it.name)` by `or`": SEEN,
    "core.placement.scope: _start: if not `jobs`": Fate(
        test=f"{SCOPE}::test_every_job_has_one_owner_also_one_that_comes_later",
        reason="shows only with more schedulers than jobs, which a simulation never has",
    ),
    "loops.placer.session_keeper: SessionKeeper.is_believed: "
    "`self.session is not None and self.clock.monotonic() < self.coordina...` by `or`": Fate(
        test=f"{PLACEMENT}::test_who_shall_stop_without_a_coordinator_fires_only_while_its_claims_are_its_own",
        reason="matters under `on_lost: stop` and `exit`; simulations go on",
    ),
    "core.placement.claim: margin: "
    "`sum((sum(left[dead:]) >= jobs for dead in range(len(left) + 1))) - 1` with its operands swapped": Fate(
        test="tests/unit/core/placement/test_claim.py::test_spare_and_margin",
        reason="only people are told the margin",
    ),
    "loops.placer.claim: ClaimPlacer._in_session: "
    "`self._session != self._keeper.session` is `self._session == self._keeper.session`": SEEN,
    "core.placement.scope: needs_plan: `True` is `False` (3)": Fate(
        reason="`zip(strict=…)` over the names and weights of a plan, which are made together: always equally many",
    ),
    "loops.placer.scope: ScopePlacer.once: `self._keeper.session is None` is `self._keeper.session is not None`": SEEN,
    "loops.placer.beat: BeatPlacer.owns: "
    "returns nothing instead of `self._keeper.may_fire and tick_of(at, self._beat_s) in self._won`": SEEN,
    "loops.placer.claim: Handovers.__init__: `0` is `1`": Fate(
        reason="the version is read in every sweep before it is used",
    ),
    "loops.placer.session_keeper: SessionKeeper._update: "
    "`not await self.coordinator.update(self.key, self._fence, encode(peer))` without `not`": SEEN,
    "core.placement.scope: plan: `strategy is Strategy.STABLE or not nodes` without its last part": Fate(
        test=f"{SCOPE}::test_with_nobody_to_cut_for_nobody_has_a_job",
        reason="shows only when all schedulers are drained at once, which no seed has done within so many",
    ),
    "loops.placer.session_keeper: SessionKeeper._lose: without `self.session = None`": SEEN,
    "core.placement.claim: gives: `not facts.automatic` without `not`": QUICKLY,
    "coordinators.recipes: Queue.take: without `gone[key] = fence`": Fate(
        test=f"{BUILT}::test_nobody_keeps_in_hand_what_is_done_already",
        reason="placement has no queue",
    ),
    "loops.placer.beat: BeatPlacer.__init__: without `self._beat_s = config.beat_s`": SEEN,
    "core.placement.beat: tick_of_soon: `1` is `2` (2)": Fate(
        test="tests/unit/core/placement/test_beat.py::test_a_node_turns_to_the_next_beat_shortly_before_it_begins",
        reason="costs at most the wait of a busy node, 1 s; a slot is late from 1.5 s on",
    ),
    "loops.placer.session_keeper: SessionKeeper._enter: without `self._been_present = True`": Fate(
        test=f"{PLACEMENT}::test_a_name_that_is_taken_fences_who_had_it",
        reason="no two nodes of a simulation have one name at the same time",
    ),
    "loops.placer.scope: ScopePlacer.owns: `self._before is None` is `self._before is not None`": SEEN,
    "loops.placer.claim: ClaimPlacer._release: `job_id in self._mine` is `job_id not in self._mine`": QUICKLY,
    "loops.placer.scope: ScopePlacer._follow: "
    "`part.name == self._keeper.peer.name` is `part.name != self._keeper.peer.name`": Fate(
        test=f"{PLACEMENT}::test_everybody_tells_the_range_that_it_acts_by",
        reason="only people are told the range",
    ),
    "loops.placer.session_keeper: SessionKeeper._attend: if not `self.session is None`": SEEN,
    "coordinators.recipes: notify: without `await coordinator.put(f'{NOTICE}/{topic}', clock.token())`": Fate(
        test=f"{BUILT}::test_a_notice_wakes_whoever_listens_to_its_topic",
        reason="a lost notice costs the time until the next look, and nothing else",
    ),
    "core.placement.claim: _is_calm: `own == len(facts.held)` is `own != len(facts.held)`": QUICKLY,
    "loops.placer.session_keeper: SessionKeeper._may_have_name: returns nothing instead of `False`": Fate(
        reason="nothing is as good as False to whoever asks",
    ),
}
"""By name. Who changes a line that a name quotes makes the name void: it is not tried any more."""

QUICK = tuple(name for name, fate in TRIED.items() if fate.quick)
