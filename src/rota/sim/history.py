"""What happened in one simulation, as it was seen from outside: commits at the store, entries at the coordinator, and
attempts on their hosts. Times are the simulation's own seconds; `store_us` is the store's clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from rota.sim.plan import Scenario


class Fired(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A committed row for one slot, or for several in a row."""

    at_s: float
    store_us: int
    job_id: int
    slot_us: int
    slots: int
    node: str


class Noted(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An item was given to a node; or, with an outcome, the store took the end of an attempt for true. In the order in
    which it was committed."""

    at_s: float
    item_id: int
    attempt: int
    outcome: str = ""


class Attempted(msgspec.Struct, array_like=True, gc=False):
    """An attempt ran on a host, with its token; the end is none while it runs."""

    at_s: float
    host: str
    item_id: int
    attempt: int
    token: int
    tenant: str
    end_s: float | None = None
    outcome: str = ""


class Claimed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry of the coordinator came, or went."""

    at_s: float
    key: str
    session: str
    value: str
    gone: bool = False


class Survey(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A look at everybody: who would fire each job, and how many jobs each scheduler says it has and may have."""

    at_s: float
    owners: dict[int, list[str]]
    told: dict[str, tuple[int, int]]
    up: list[str]
    untold: list[str] = []
    """What the coordinator should say of the schedulers by their configuration, and does not."""
    drained: list[str] = []
    busy: list[int] = []
    """Jobs with a live run."""


class HostWindow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What was the matter with a host for a while."""

    host: str
    at_s: float
    until_s: float


class Line(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something for the reader of a trace."""

    at_s: float
    text: str


class Sent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message about alarms has arrived, sent by a host."""

    at_s: float
    host: str
    message_id: str
    kind: str
    count: int


class StuckItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An item that was not over when the simulation was; since when it has been in its queue."""

    item_id: int
    since_s: float
    state: str


EFFECTS = ("takeovers", "expired_leases", "expired_sessions", "unknown_commits", "failed_calls", "lost_attempts")
"""The counts that would be 0 without faults."""


class Counts(msgspec.Struct):
    """How much the faults did."""

    takeovers: int = 0
    expired_leases: int = 0
    expired_sessions: int = 0
    unknown_commits: int = 0
    failed_calls: int = 0
    lost_attempts: int = 0
    lost_connections: int = 0
    """In the middle of transactions."""
    lock_waits: int = 0
    """How often a transaction has waited for another."""
    calls: int = 0
    chance: float = 0.0
    """The next throw of the loop: two runs that differ anywhere differ here."""

    @property
    def effect(self) -> int:
        """How much happened that would not have happened without faults."""
        return sum(getattr(self, name) for name in EFFECTS)


class History(msgspec.Struct):
    scenario: Scenario
    fired: list[Fired] = []
    items: list[Noted] = []
    attempts: list[Attempted] = []
    entries: list[Claimed] = []
    seen: list[Survey] = []
    frozen: list[HostWindow] = []
    drained: list[HostWindow] = []
    """When nodes were on the offline list."""
    defined_us: dict[int, int] = {}
    """When jobs were defined, by the store's clock."""
    sent: list[Sent] = []
    stuck: list[StuckItem] = []
    lines: list[Line] = []
    counts: Counts = msgspec.field(default_factory=Counts)
    asking: str = ""
    """Whose request is being applied."""
    end_s: float = 0.0
    end_us: int = 0

    def hash(self) -> str:
        """Names what happened: the same seed has the same, in any process."""
        return hashlib.blake2b(msgspec.json.encode(self), digest_size=16).hexdigest()

    def trace(self) -> Iterator[str]:
        """Everything, in the order of time."""
        lines = [(it.at_s, it.text) for it in self.lines]
        lines += [
            (it.at_s, f"{it.node} fired job {it.job_id}, slot {it.slot_us / 1e6:.0f}, {it.slots} in all")
            for it in self.fired
        ]
        lines += [(it.at_s, f"item {it.item_id}, attempt {it.attempt}: {it.outcome or 'given'}") for it in self.items]
        for it in self.attempts:
            what = f"item {it.item_id}, attempt {it.attempt} ({it.tenant})"
            lines.append((it.at_s, f"{it.host} runs {what}"))
            if it.end_s is not None:
                lines.append((it.end_s, f"{it.host} ran {what}: {it.outcome}"))
        lines += [(it.at_s, f"{it.key} {'is free' if it.gone else '= ' + it.value[:60]}") for it in self.entries]
        lines += [(it.at_s, f"{it.host} tells people: {it.kind}, {it.count} in all") for it in self.sent]
        for at_s, text in sorted(lines, key=lambda line: line[0]):
            yield f"{at_s:9.3f}  {text}"
