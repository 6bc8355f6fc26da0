"""A node whose scheduler can be directed by files in a folder, for demonstrations that go one way of many (A0.12):

owners.json    {job id: name}: who tries for a job; a job that is not in it is tried for by all
late-NAME      while it is there, the scheduler of that name goes on seeing the members that it saw last
asked-NAME     written by the scheduler: the unowned jobs that it was to choose from in each sweep

python -m tests.cluster.directed FOLDER --store URL --name NAME
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rota.loops.placer.claim import ClaimPlacer
from rota.loops.placer.cluster_view import ClusterView
from rota.model.cluster import Peer
from tests.cluster.node import main

OWNERS = "owners.json"


def direct(folder: Path, name: str) -> None:
    init, read_peers = ClaimPlacer.__init__, ClusterView.peers
    last: dict[ClusterView, tuple[Peer, ...]] = {}

    def order(job_ids: Iterable[int]) -> Sequence[int]:
        unowned = sorted(job_ids)
        with (folder / f"asked-{name}").open("a") as asked:
            asked.write(json.dumps(unowned) + "\n")
        owners = json.loads((folder / OWNERS).read_text())
        return [job_id for job_id in unowned if owners.get(str(job_id), name) == name]

    def ordered(self: ClaimPlacer, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **{**kwargs, "order": order})

    async def peers(self: ClusterView) -> tuple[Peer, ...]:
        if self not in last or not (folder / f"late-{name}").exists():
            last[self] = await read_peers(self)
        return last[self]

    ClaimPlacer.__init__ = ordered  # type: ignore[method-assign]
    ClusterView.peers = peers  # type: ignore[method-assign]


if __name__ == "__main__":
    folder = sys.argv.pop(1)
    direct(Path(folder), sys.argv[sys.argv.index("--name") + 1])
    sys.exit(main())
