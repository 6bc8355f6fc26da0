"""Examine the cluster, repair what is safe to repair, and dump: the state of the cluster in one value, without secrets
and host names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.control.survey import ClusterSurvey
from rota.coordinators.recipes import handover_key, read_handover, read_repairs, write_handover
from rota.core.cluster import ClusterFacts, stale_handovers
from rota.core.doctor import Health, Stuck, examine, lasting, suspects
from rota.core.explain import explain
from rota.core.findings import Finding
from rota.core.masking import Mask, host_of, hosts_in
from rota.core.placement.layout import Wrong, wrong
from rota.model.entry import folder_of
from rota.model.folders import CLAIMED, HANDOVER, LASTING, REPAIRS
from rota.model.node import Members, Node
from rota.model.plan import JobFilter, RunFilter
from rota.transactions.change import misplaced, place_again

ITEMS_MAX = 1000
"""How many of the oldest live items are looked at."""
PAGE = 1000
RUNS_MAX = 10
"""How many runs with items that should have moved on are looked at closely."""
TOPICS = ("drain", "release")
EVENTS_MAX = 200
NODES_MAX = 200
UNOWNED_MAX = 100


class DoctorControl(ClusterSurvey):
    async def findings(self) -> tuple[Finding, ...]:
        """Return the findings, the worst first. One that may pass by itself must still be there a session later."""
        found = examine(await self._health())
        if not any(it.passes for it in found):
            return found
        await self._clock.sleep(self._coordination.ttl_s)
        return lasting(found, examine(await self._health()))

    async def repair(self) -> tuple[str, ...]:
        """Do what harms nobody: list the jobs anew that want an owner, remove hand-overs that lead nowhere and
        entries of the coordinator that belong to nobody, wake every scheduler. Returns what was done."""
        done = []
        if jobs := await place_again(self._store):
            done.append(f"listed {jobs} jobs anew as wanting an owner, or not")
        for giver, stale in stale_handovers(await self.facts()).items():
            if await self._forget(giver, stale):
                done.append(f"removed {len(stale)} hand-overs of {giver}")
        for it in await self._wrong(await self.facts()):
            entry = it.entry
            if it.value is None and await self._coordination.delete(entry.key, entry.version):
                done.append(f"removed {entry.key} from the coordinator: {it.why}")
        for topic in TOPICS:
            await self._notify(topic)
        return (*done, "woke every scheduler")

    async def _health(self) -> Health:
        cluster = await self.facts()
        members, asked_at, answered_at = await self._timed_nodes()
        await self._read_all()
        return Health(
            cluster=cluster,
            members=members,
            asked_at=asked_at,
            answered_at=answered_at,
            weaknesses=await self._store.weaknesses(),
            raised=await self._store.raised(),
            misplaced=await self._store.look(misplaced),
            wrong=await self._wrong(cluster),
            repairs={entry.name: read_repairs(entry) for entry in await self._entries(REPAIRS)},
            stuck=await self._stuck(cluster),
            unread=dict(self._store.unread),
        )

    async def _timed_nodes(self) -> tuple[Members, datetime, datetime]:
        asked_at = self._clock.wall()
        return await self._store.nodes(), asked_at, self._clock.wall()

    async def _wrong(self, cluster: ClusterFacts) -> tuple[Wrong, ...]:
        """Entries that are not what they should be. Of hand-overs only those that say nothing: the others are stale, or
        under way."""
        return tuple(
            it
            for it in wrong([it for folder in ("", *LASTING, *CLAIMED) for it in await self._entries(folder)])
            if folder_of(it.entry.key) != HANDOVER or not cluster.handovers.get(it.entry.name)
        )

    async def _read_all(self) -> None:
        """Read all jobs, the newest runs and the alarm rules, so that what this release cannot read is reported."""
        after_id = 0
        while page := await self._store.jobs(JobFilter(after_id=after_id, limit=PAGE)):
            after_id = page[-1].id
        await self._store.runs(RunFilter(limit=PAGE))
        await self._store.alarm_rules()

    async def _stuck(self, cluster: ClusterFacts) -> tuple[Stuck, ...]:
        queued = await self._store.queued(limit=ITEMS_MAX)
        items = {it.item_id: it.run_id for it in suspects(queued, cluster.now)}
        found: list[Stuck] = []
        for run_id in list(dict.fromkeys(items.values()))[:RUNS_MAX]:
            reasons = explain(await self._store.standing(run_id))
            found += [
                Stuck(item_id=it.item_id, run_id=run_id, why=it.why, text=it.text)
                for it in reasons
                if it.item_id is not None and it.item_id in items
            ]
        return tuple(found)

    async def _forget(self, giver: str, jobs: Sequence[int]) -> bool:
        """Remove hand-overs, unless somebody writes there at the same time."""
        entry = await self._entry(handover_key(giver))
        if entry is None:
            return False
        left = {job_id: it for job_id, it in read_handover(entry).items() if job_id not in jobs}
        if left:
            value, version = write_handover(left), entry.version
            return await self._coordination.put(entry.key, value, version=version) is not None
        return await self._coordination.delete(entry.key, entry.version)


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
