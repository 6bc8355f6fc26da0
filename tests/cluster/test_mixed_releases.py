"""Two releases on one store: a job with a word that the older one does not know costs the other jobs nothing; the older
node hands its items to the newer one, and ends them only when no newer one lives."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rota.model.job import Task
from rota.model.trigger import Every
from tests.cluster.newer import MEANING, WORD
from tests.cluster.processes import SHORT
from tests.cluster.shift import Shift, a_shift
from tests.factories import a_definition, allow

JOBS = 4


async def ended(shift: Shift, name: str, state: str = "succeeded") -> int:
    query = f"""SELECT count(*) FROM rota_item i JOIN rota_run r ON r.id = i.run_id JOIN rota_job j ON j.id = r.job_id
        WHERE j.name LIKE '{name}%' AND i.state = '{state}'"""
    return int((await shift.witness.ask(query))[0][0])


async def more(shift: Shift, name: str, count: int, state: str = "succeeded") -> None:
    """Wait until so many more items of a job have ended."""
    before = await ended(shift, name, state)

    async def enough() -> bool:
        await asyncio.sleep(0.1)
        return await ended(shift, name, state) >= before + count

    await shift.until_asked(enough, f"{count} more items of {name} to be {state}", 40)


async def write_newer_word(shift: Shift) -> None:
    whose = {
        "rota_job": "name = 'newer'",
        "rota_job_version": "job_id = (SELECT id FROM rota_job WHERE name = 'newer')",
    }
    for table, condition in whose.items():
        await shift.witness.ask(
            f"""UPDATE {table} SET definition = replace(definition, '"{MEANING}"', '"{WORD}"') WHERE {condition}"""
        )


async def unreadable(shift: Shift, outcome: str) -> int:
    """How many attempts of the older node ended so because it could not read their job."""
    query = f"""SELECT count(*) FROM rota_attempt
        WHERE node = 'old' AND outcome = '{outcome}' AND message LIKE 'unreadable%'"""
    return int((await shift.witness.ask(query))[0][0])


async def test_an_unknown_word_costs_the_other_jobs_nothing_and_newer_nodes_get_its_items(
    postgres_url: str, tmp_path: Path
) -> None:
    async with a_shift(postgres_url, tmp_path, settings={**SHORT, "ROTA_EXECUTOR_SEATS": "8"}) as shift:
        common: dict[str, Any] = {"rule": Every(every_s=1), "overlap": allow(10**6)}
        nap = (Task(name="main", runner="shell", config={"argv": ["sleep", "3"]}),)
        jobs = [a_definition(f"good-{n}", **common) for n in range(JOBS)]
        await shift.control.jobs.apply([*jobs, a_definition("newer", **common, tasks=nap)])
        await write_newer_word(shift)
        (old,) = await shift.start("old")
        await more(shift, "good", 3 * JOBS)
        assert old.log.count("job.unreadable") == 1

        await shift.start("new", mutant="newer_release")
        await more(shift, "newer", 8)
        handed = await unreadable(shift, "lost")
        assert handed > 0, "void: the older node was given none of its items"
        assert await ended(shift, "newer", "failed") == 0, "a newer node lived all the time"

        shift.nodes["new"].kill()

        async def is_ended() -> bool:
            await asyncio.sleep(0.1)
            return await unreadable(shift, "failed") > 0

        await shift.until_asked(is_ended, "what no living node can read to be ended", 40)
        await more(shift, "good", 2 * JOBS)
        assert not shift.surprises(), old.log
        lines = [line for line in old.log.splitlines() if "read" in line]
        print(f"\n{handed} items handed back; {len(lines)} lines of it in the older node's log")
