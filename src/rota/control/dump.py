"""Dump: the state of the cluster in one value, without secrets and host names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from rota.control.survey import ClusterSurvey
from rota.core.cluster import ClusterFacts
from rota.core.masking import Mask, host_of, hosts_in
from rota.model.node import Node

EVENTS_MAX = 200
NODES_MAX = 200
UNOWNED_MAX = 100


class DumpControl(ClusterSurvey):
    async def make(self, settings: Mapping[str, object], *, hosts: Iterable[str] = ()) -> dict[str, Any]:
        """The configuration (the value of each setting), schedulers, nodes, limits, what waits and runs, and the last
        lines of the history. `hosts` are names to be masked besides those that are found."""
        cluster = await self.facts()
        members = await self._store.nodes(gone=True)
        nodes = members.nodes[-NODES_MAX:]
        events = await self._store.events(limit=EVENTS_MAX)
        whole = {
            "at": cluster.now.isoformat(),
            "configuration": dict(settings),
            "cluster": _cluster(cluster),
            "nodes": [_node(node) for node in nodes],
            "limits": [_plain(it) for it in await self._store.limits()],
            "queue": [_plain(it) for it in await self._store.statistics()],
            "store": {
                "generation": await self._store.generation(),
                "weaknesses": list(await self._store.weaknesses()),
            },
            "events": [_plain(it) for it in events],
        }
        masked: dict[str, Any] = Mask({*hosts, *_hosts(cluster, nodes, settings)}).value(whole)
        return masked


def _cluster(facts: ClusterFacts) -> dict[str, Any]:
    return {
        "placement": None if facts.placement is None else str(facts.placement),
        "jobs": len(facts.jobs),
        "spare": facts.spare,
        "margin": facts.margin,
        "unowned": {"count": len(facts.unowned), "first": list(facts.unowned[:UNOWNED_MAX])},
        "leader": facts.leader,
        "peers": [
            {**_plain(it), "owns": facts.held[it.name], "may_own": facts.limits.get(it.name)} for it in facts.peers
        ],
        "plan": _plain(facts.plan),
        "handovers": [
            {"job_id": job_id, "from": giver, "to": it.to}
            for giver, jobs in facts.handovers.items()
            for job_id, it in jobs.items()
        ],
        "drained": [_plain(it) for it in facts.drains],
        "paused": [_plain(it) for it in facts.holds],
    }


def _node(node: Node) -> dict[str, Any]:
    """Return a node without what means something only on its host."""
    joined = _plain(node.joined)
    place = joined.pop("place")
    facts = {name: it for name, it in _plain(node).items() if name != "joined"}
    return {**facts, **joined, "host": place["host"], "pid": place["pid"]}


def _plain(value: object) -> Any:
    return msgspec.to_builtins(value, str_keys=True)


def _hosts(cluster: ClusterFacts, nodes: Sequence[Node], settings: Mapping[str, object]) -> set[str]:
    found = {node.joined.place.host for node in nodes} | {host_of(it.address) for it in cluster.peers}
    for name, value in settings.items():
        found |= hosts_in(str(value))
        if any(word in name for word in ("host", "listen", "advertise", "address")):
            found |= {host_of(word.strip()) for word in str(value).split(",")}
    return found - {""}
