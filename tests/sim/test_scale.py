"""What `rota sim scale` says, at sizes that can be counted by hand or job by job."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from rota.cli.main import cli
from rota.core.placement.scope import owner_of
from rota.model.cluster import Strategy
from rota.sim.scale import Moved, _differing, _plan, _sizes, compared, picture

HASHED = ("scope, stable", "rendezvous hashing")


def by_name(nodes: int, jobs: int) -> dict[str, Moved]:
    return {it.placement: it for it in compared(nodes, jobs)}


def test_every_placement_is_compared_with_plain_hashing() -> None:
    names = ["claim", "scope, scope", "scope, balanced", "scope, stable", "beat", "rendezvous hashing"]
    assert list(by_name(4, 40)) == names


@pytest.mark.parametrize(("nodes", "jobs"), [(3, 30), (4, 40), (5, 400)])
def test_claims_move_no_more_than_a_share(nodes: int, jobs: int) -> None:
    claim = by_name(nodes, jobs)["claim"]
    assert claim.join == jobs // (nodes + 1)
    assert claim.leave == claim.crash == jobs // nodes
    assert 1 <= claim.imbalance <= 1 + nodes / jobs


@pytest.mark.parametrize("strategy", [Strategy.SCOPE, Strategy.BALANCED])
@pytest.mark.parametrize(("nodes", "jobs"), [(3, 10), (7, 100), (10, 5), (4, 41)])
def test_ranges_are_compared_as_if_job_by_job(strategy: Strategy, nodes: int, jobs: int) -> None:
    names = [f"node-{n}" for n in range(nodes)]
    one, other = _plan(names, jobs, strategy), _plan(names[1:], jobs, strategy)
    counted = sum(owner_of(one)(job_id) != owner_of(other)(job_id) for job_id in range(1, jobs + 1))
    assert _differing(one, other, jobs) == counted
    assert sum(_sizes(one, jobs)) == jobs


@pytest.mark.parametrize(("nodes", "jobs"), [(2, 1), (3, 30), (10, 5), (20, 2000), (50, 3000)])
def test_the_largest_part_is_never_below_the_mean(nodes: int, jobs: int) -> None:
    assert {name: it.imbalance for name, it in by_name(nodes, jobs).items() if it.imbalance < 1} == {}


def test_ranges_move_a_quarter_and_hashes_a_share() -> None:
    found = by_name(20, 2000)
    assert found["scope, balanced"].join == pytest.approx(500, rel=0.1)
    for name in HASHED:
        assert found[name].join == pytest.approx(2000 / 21, rel=0.15)
        assert found[name].leave == 100
        assert found[name].imbalance > found["scope, balanced"].imbalance


def test_a_beat_moves_nothing_until_its_winner_dies() -> None:
    beat = by_name(5, 100)["beat"]
    assert (beat.join, beat.leave, beat.crash, beat.imbalance) == (0, 0, 20, 5.0)


def test_the_command_answers_in_json_and_writes_a_picture(tmp_path: Path) -> None:
    file = tmp_path / "scale.svg"
    done = CliRunner().invoke(cli, ["sim", "scale", "--nodes", "5", "--jobs", "50", "--json", "--plot", str(file)])
    answer = json.loads(done.stdout)
    assert (answer["nodes"], answer["jobs"], answer["sample"]) == (5, 50, 50)
    assert {it["placement"] for it in answer["placements"]} >= {"claim", "beat", *HASHED}
    assert all(it["reown_s"] >= 4 and it["operations"] > 0 for it in answer["placements"])
    texts = [it.text for it in ET.parse(file).iter("{http://www.w3.org/2000/svg}text")]
    assert {it["placement"] for it in answer["placements"]} <= set(texts)


def test_the_picture_has_a_bar_for_each_figure() -> None:
    svg = ET.fromstring(picture(compared(4, 40), 4, 40))
    bars = [it for it in svg.iter("{http://www.w3.org/2000/svg}rect") if it.get("x") == "170" and it.get("y") != "36"]
    assert len(bars) == 6 * 3
