"""A node is frozen, killed or cut off while it executes: its processes are gone before anybody else starts their items,
and nothing is lost (P3, P5, P10; S2.7, S2.8)."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.checkers.executing import START, Interval
from tests.cluster.processes import LEEWAY_S, SHORT, SHORT_MARGIN_S, SHORT_S, lease
from tests.cluster.shift import SECOND_NS, Shift, a_shift

ITEMS = 24
LONG = {"ms": 110_000, "again_ms": 50}
"""Takes for ever the first time, and a moment when it is tried again."""
AGAIN_S = 2.0 + LEEWAY_S
"""Until items start again: after lease and margin, or on the same host after the new agent has joined."""
RESCUED_S = SHORT_S + SHORT_MARGIN_S + AGAIN_S
STARTED_S = 5.0
"""Until the new agent is up. It is alone, and has to watch lease and margin itself."""
SHORTLY = f"lease {SHORT_S:g} s, margin {SHORT_MARGIN_S:g} s"


async def busy(shift: Shift, count: int = ITEMS) -> list[int]:
    """Have so many items executing, with several in a process."""
    await shift.control.limits.set_quota("acme")
    done = await shift.assign("acme", count, info=LONG, concurrency=6)
    await shift.until(lambda: len(shift.watcher.executing()) == count, f"{count} items to execute")
    return [item.id for item in done.items]


def firsts(shift: Shift) -> dict[int, Interval]:
    """The first attempts, by item."""
    return {it.item: it for it in shift.executed() if it.attempt == 1}


async def rerun(shift: Shift, items: list[int], within_s: float) -> dict[int, int]:
    """Wait until all items have started again and ended; returns when each started again."""
    await shift.until(
        lambda: {it.item for it in shift.executed() if it.attempt > 1 and it.told} >= set(items), "reruns", within_s
    )
    await shift.until_idle(within_s)
    lines = [line for line in shift.watcher.lines if line.kind == START and line.attempt > 1]
    return {line.item: line.mono_ns for line in reversed(lines)}


async def judge_rerun(shift: Shift, items: list[int], since_ns: int, what: str, within_s: float = RESCUED_S) -> None:
    """Every item ended in its second attempt, which began in time, and none ran twice at a time."""
    again = await rerun(shift, items, 60)
    first = firsts(shift)
    assert not any(it.told for it in first.values()), "void: a first attempt came to its end"
    gone_s = [(it.end_ns - since_ns) / SECOND_NS for it in first.values()]
    start_s = [(at - since_ns) / SECOND_NS for at in again.values()]
    apart_s = min(again[item] - first[item].end_ns for item in items) / SECOND_NS
    offset = await shift.clock_ns()
    lost = [it for it in await shift.attempts(*items) if it["outcome"] == "lost"]
    back_s = [(it["ended_at"] * 1000 - offset - since_ns) / SECOND_NS for it in lost]
    print(
        f"\n{what}: n={len(items)} gone {min(gone_s):.2f} to {max(gone_s):.2f} s, given back {min(back_s):.2f} to "
        f"{max(back_s):.2f} s, started again {min(start_s):.2f} to {max(start_s):.2f} s later; at least "
        f"{apart_s:.2f} s between the end of one attempt and the start of the next"
    )
    assert max(start_s) <= within_s, f"started again after {max(start_s):.2f} s, not within {within_s:g} s"
    verdict = shift.judged()
    assert verdict.clean, verdict.two_nodes[:5] + verdict.tokens[:5]
    assert await states(shift) == {("succeeded", 2): len(items)}


async def states(shift: Shift) -> dict[tuple[str, int], int]:
    """How many items ended in which state, after how many attempts."""
    attempts = "(SELECT count(*) FROM rota_attempt a WHERE a.item_id = i.id)"
    found = await shift.witness.ask(f"SELECT state, {attempts}, count(*) FROM rota_item i GROUP BY 1, 2")
    return {(state, tries): count for state, tries, count in found}


async def freeze_and_judge(shift: Shift, settings: str, within_s: float = RESCUED_S) -> None:
    await shift.start("node-0")
    items = await busy(shift)
    await shift.start("node-1")
    since = time.monotonic_ns()
    shift.nodes["node-0"].send(signal.SIGSTOP)
    await judge_rerun(shift, items, since, f"agent frozen, {settings}", within_s)
    shift.nodes["node-0"].send(signal.SIGCONT)
    await shift.until(lambda: shift.nodes["node-0"].log.count(" node.joined") == 2, "the thawed node to join anew")
    assert await states(shift) == {("succeeded", 2): len(items)}, "the thawed node changed what had ended"


async def test_a_frozen_agent_loses_its_processes_before_others_start_its_items(
    postgres_url: str, tmp_path: Path
) -> None:
    async with a_shift(postgres_url, tmp_path, settings={**SHORT, "ROTA_EXECUTOR_SEATS": "32"}) as shift:
        await freeze_and_judge(shift, SHORTLY)


@pytest.mark.nightly
async def test_a_frozen_agent_loses_its_processes_on_mariadb_too(mariadb_url: str, tmp_path: Path) -> None:
    async with a_shift(mariadb_url, tmp_path, settings={**SHORT, "ROTA_EXECUTOR_SEATS": "32"}) as shift:
        await freeze_and_judge(shift, SHORTLY)


@pytest.mark.nightly
async def test_a_frozen_agent_loses_its_processes_under_the_default_lease(postgres_url: str, tmp_path: Path) -> None:
    async with a_shift(postgres_url, tmp_path, settings={"ROTA_EXECUTOR_SEATS": "32"}) as shift:
        await freeze_and_judge(shift, "lease 10 s, margin 1 s", 11 + AGAIN_S)


async def test_an_agent_that_is_cut_off_loses_its_processes_before_others_start_its_items(
    postgres_url: str, tmp_path: Path
) -> None:
    async with a_shift(postgres_url, tmp_path, settings={**SHORT, "ROTA_EXECUTOR_SEATS": "32"}) as shift:
        await shift.start("node-0", by_proxy=True)
        items = await busy(shift)
        await shift.start("node-1")
        since = time.monotonic_ns()
        await shift.proxy.black_hole()
        await judge_rerun(shift, items, since, f"agent cut off from the store, {SHORTLY}")
        await shift.proxy.pass_through()
        await shift.until(lambda: shift.nodes["node-0"].log.count(" node.joined") == 2, "the node to join anew")
        assert await states(shift) == {("succeeded", 2): len(items)}, "what was sent late changed what had ended"


async def test_without_its_switch_a_frozen_agent_would_be_caught(postgres_url: str, tmp_path: Path) -> None:
    async with a_shift(postgres_url, tmp_path, settings={**SHORT, "ROTA_EXECUTOR_SEATS": "32"}) as shift:
        await shift.start("node-0", mutant="no_switch")
        items = await busy(shift)
        await shift.start("node-1")
        shift.nodes["node-0"].send(signal.SIGSTOP)
        await rerun(shift, items, 60)
        verdict = shift.judged()
        print(f"\nmutant no_switch: {verdict}")
        assert len(verdict.two_nodes) == len(items)


async def test_items_of_a_killed_agent_run_elsewhere_when_its_lease_is_over(postgres_url: str, tmp_path: Path) -> None:
    async with a_shift(postgres_url, tmp_path, settings={**SHORT, "ROTA_EXECUTOR_SEATS": "32"}) as shift:
        await shift.start("node-0", elsewhere=True)
        items = await busy(shift)
        await shift.start("node-1")
        since = time.monotonic_ns()
        shift.nodes["node-0"].kill_agent()
        over_ns = await lease_over_ns(shift, "node-0", margin_s=SHORT_MARGIN_S)
        await judge_rerun(shift, items, since, f"agent on another host killed, {SHORTLY}")
        assert min(firsts_again(shift)) > over_ns, "an item was started again before the lease of its node was over"


async def test_an_agent_that_starts_again_on_its_host_gives_its_items_back_at_once(
    postgres_url: str, tmp_path: Path
) -> None:
    """Long before the lease of its predecessor is over, so the lease was not waited for."""
    async with a_shift(postgres_url, tmp_path, settings={**lease(120, 1), "ROTA_EXECUTOR_SEATS": "32"}) as shift:
        await shift.start("node-0")
        items = await busy(shift)
        shift.nodes["node-0"].kill_agent()
        over_ns = await lease_over_ns(shift, "node-0")
        await shift.start("node-0")
        await judge_rerun(shift, items, time.monotonic_ns(), "restart on the same host, from its joining", AGAIN_S)
        assert max(firsts_again(shift)) < over_ns


async def test_the_same_name_on_another_host_waits_for_the_lease(postgres_url: str, tmp_path: Path) -> None:
    async with a_shift(postgres_url, tmp_path, settings={**SHORT, "ROTA_EXECUTOR_SEATS": "32"}) as shift:
        await shift.start("node-0")
        items = await busy(shift)
        since = time.monotonic_ns()
        shift.nodes["node-0"].kill_agent()
        over_ns = await lease_over_ns(shift, "node-0", margin_s=SHORT_MARGIN_S)
        shift.node("node-0", elsewhere=True)
        await shift.start("node-0")
        await judge_rerun(shift, items, since, f"same name on another host, {SHORTLY}", STARTED_S + RESCUED_S)
        assert min(firsts_again(shift)) > over_ns, "an item was started again before the lease of its node was over"


def firsts_again(shift: Shift) -> list[int]:
    return [line.mono_ns for line in shift.watcher.lines if line.kind == START and line.attempt == 2]


async def lease_over_ns(shift: Shift, name: str, *, margin_s: float = 0.0) -> int:
    """When the lease of a node that renews no more, and the margin, are over, by the monotonic clock."""
    query = "SELECT until_at FROM rota_lease JOIN rota_node ON node_id = id WHERE name = '{}'"
    ((until,),) = await shift.witness.ask(query.format(name))
    return int(until) * 1000 + round(margin_s * SECOND_NS) - await shift.clock_ns()
