"""Start process trees in this process, and print what they do, as one line of JSON: `python process_trees.py STATE`."""

import asyncio
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

resource.setrlimit(resource.RLIMIT_NOFILE, (500, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

from rota.clock import SystemClock  # noqa: E402 - it looks at its limits when it is loaded
from rota.errors import CannotStart  # noqa: E402
from rota.execution import descriptors  # noqa: E402
from rota.execution.isolation.process_tree import ProcessTree  # noqa: E402
from rota.execution.isolation.process_trees import ProcessTrees  # noqa: E402
from rota.execution.isolation.tree_order import TreeSpec  # noqa: E402

OPEN = "import os\nfor n in range(200):\n  try: os.fstat(n)\n  except OSError: continue\n  print(n)"
PATIENCE_S = 30
LIMIT = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"


def open_here() -> int:
    return sum(map(_is_open, range(1024)))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def spec(*argv: str, channel: bool = False) -> TreeSpec:
    return TreeSpec(argv=argv, env={"PATH": os.defpath}, label="one", channel=channel)


def python(code: str, *, channel: bool = False) -> TreeSpec:
    return spec(REAL, "-I", "-S", "-c", code, channel=channel)


async def said(process_trees: ProcessTrees, what: TreeSpec) -> str:
    tree = await process_trees.start(what)
    end = await tree.ended()
    assert end.code == 0, end
    text = os.read(tree.output, 65536).decode()
    close(tree)
    return text


def close(tree: ProcessTree) -> None:
    os.close(tree.output)
    if tree.channel:
        tree.channel.close()


async def refusal(process_trees: ProcessTrees, program: str) -> str:
    try:
        await process_trees.start(spec(program))
    except CannotStart as error:
        return str(error)
    return ""


async def killed(process_trees: ProcessTrees, *, stopped: bool) -> int | None:
    """By which signal a tree ends that is killed, perhaps while its supervisor stands still."""
    tree = await process_trees.start(spec("sleep", "1000"))
    if stopped:
        os.kill(tree.record().supervisor.pid, signal.SIGSTOP)
    tree.kill()
    end = await tree.ended()
    close(tree)
    return end.signal


async def after_the_death_of_the_zygote(process_trees: ProcessTrees) -> list[str]:
    """What still runs must not keep its end from being seen."""
    running = await process_trees.start(spec("sleep", "1000"))
    before = process_trees.zygote_pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_S):
        texts = [await said(process_trees, spec("echo", "again")), str(process_trees.zygote_pid != before)]
    running.kill()
    texts.append(str((await running.ended()).signal))
    close(running)
    return texts


async def main(state: Path) -> dict[str, Any]:
    process_trees = await ProcessTrees.open(state_dir=state, node="n1")
    process_trees.renew(SystemClock().boottime() + 1000)
    await said(process_trees, spec("true"))
    before = open_here()
    facts = {
        "open": (await said(process_trees, python(OPEN))).split(),
        "open with a channel": (await said(process_trees, python(OPEN, channel=True))).split(),
        "limit": int(await said(process_trees, python(LIMIT))),
        "many": [
            await each for each in asyncio.as_completed([said(process_trees, spec("echo", "x")) for _ in range(20)])
        ],
        "refusal": await refusal(process_trees, "/no/" + "\u00fc" * 4000),
        "killed": await killed(process_trees, stopped=False),
        "killed while stopped": await killed(process_trees, stopped=True),
        "zygote": await after_the_death_of_the_zygote(process_trees),
        "leaked": open_here() - before,
        "records": len(list(process_trees.folder.iterdir())),
    }
    await process_trees.close()
    return {**facts, "left": len(os.listdir(state))}  # noqa: PTH208


if __name__ == "__main__":
    REAL = sys.argv[2]
    descriptors.raise_limit(4, 4)
    print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
