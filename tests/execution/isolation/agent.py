"""An agent in a process of its own, to be killed or stopped: `python agent.py PLAN`, a file of JSON.

It starts what the plan lists, then prints one line of JSON about its trees, then one for each tree that ends.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from rota.clock import SystemClock
from rota.execution.isolation.process_tree import ProcessTree
from rota.execution.isolation.process_trees import ProcessTrees
from rota.execution.isolation.promises import BoundaryKind
from rota.execution.isolation.tree_order import TreeSpec
from rota.model.work import Bounds


async def main(plan: dict[str, Any]) -> None:
    kind = BoundaryKind(plan["kind"]) if plan["kind"] else None
    process_trees = await ProcessTrees.open(kind, state_dir=Path(plan["state_dir"]), node="n1")
    renew(process_trees, plan["lease_s"])
    renewing = asyncio.create_task(keep_renewing(process_trees, plan["lease_s"]))
    trees = [await process_trees.start(spec_of(one)) for one in plan["trees"]]
    supervisors = {tree.label: tree.record().supervisor.pid for tree in trees}
    say({"kind": process_trees.kind, "zygote": process_trees.zygote_pid, "supervisors": supervisors})
    await asyncio.gather(*(tell_end(tree) for tree in trees))
    await renewing


async def keep_renewing(process_trees: ProcessTrees, lease_s: float) -> None:
    while True:
        await asyncio.sleep(lease_s / 10)
        renew(process_trees, lease_s)


def renew(process_trees: ProcessTrees, lease_s: float) -> None:
    process_trees.renew(SystemClock().boottime() + lease_s)


async def tell_end(tree: ProcessTree) -> None:
    end = await tree.ended()
    say({"label": tree.label, "lost": end.supervisor_killed, "switch": end.killed_by_switch})


def spec_of(one: dict[str, Any]) -> TreeSpec:
    bounds = Bounds(user=one["user"])
    return TreeSpec(argv=tuple(one["argv"]), env=one["env"], hold_s=one["hold_s"], label=one["label"], bounds=bounds)


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
