"""A simulated node is a whole node: it has every loop there is, each over a simulated port."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from rota.loops.loop import Loop
from rota.model.cluster import Placement
from rota.sim.history import History
from rota.sim.loop import SimClock, SimLoop, simulate
from rota.sim.node import SimNode
from rota.sim.plan import Mode, draw
from rota.sim.surroundings import KeptDefinitions, Network
from rota.sim.verdict import cases, verdict
from rota.sim.witness import WitnessStore
from rota.sim.world import happened


def loops_of(package: str) -> Iterator[type[Loop]]:
    """The loops that the modules of a package define."""
    found = importlib.import_module(package)
    names = [it.name for it in pkgutil.walk_packages(found.__path__, f"{package}.")]
    modules = [found, *map(importlib.import_module, names)]
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Loop) and value.__module__ == module.__name__:
                yield value


def simulated(placement: Placement) -> set[type[Loop]]:
    async def main(loop: SimLoop) -> set[type[Loop]]:
        scenario = draw(1, placement, Mode.SAFETY)
        history = History(scenario=scenario)
        store = WitnessStore(SimClock(loop, 1, name="store"), history)
        node = SimNode(loop, scenario, 0, store, history, Network(), KeptDefinitions())
        node.start()
        found = {type(it) for it in node.loops}
        node.crash()
        return found

    return simulate(main, seed=1)


def test_a_simulated_node_has_every_loop_of_the_product() -> None:
    there = {*loops_of("rota.loops"), *loops_of("rota.alarms")} - {Loop}
    found = set().union(*(simulated(placement) for placement in Placement))
    assert len(there) > 15
    assert {it.__name__ for it in there - found} == set()
    assert {it.__name__ for it in found - there} == set(), "no loop of its own in place of the product's"


def test_the_loops_of_a_simulated_node_have_something_to_do() -> None:
    """People are told, later jobs are defined by the nodes, and old runs are forgotten."""
    scenarios = [draw(*case) for case, _ in zip(cases(1, None, None), range(6), strict=False)]
    histories = [happened(it) for it in scenarios]
    assert all(history.sent for history in histories)
    late = [(n, it) for it in histories for n, job in enumerate(it.scenario.jobs, start=1) if job.from_s]
    assert late, "void: no job is defined later"
    assert all(it.defined_us[n] > it.defined_us[1] for n, it in late)


def test_what_people_were_told_is_part_of_what_happened() -> None:
    case = next(cases(1, None, None))
    history = happened(draw(*case))
    assert verdict(case).hash == history.hash()
    history.sent.pop()
    assert verdict(case).hash != history.hash()
