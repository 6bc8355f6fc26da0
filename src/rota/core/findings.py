"""The findings of the doctor: for each code its severity, why it matters and what to do."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from rota.model.value import Value


class Severity(StrEnum):
    """Error: something does not work. Warning: it would not survive a fault. Note: good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(Value, frozen=True, kw_only=True):
    """Something that was found. `about` is whom or what it concerns; what `passes` may be gone in a moment."""

    severity: Severity
    code: str
    what: str
    about: str = ""
    why: str
    todo: str
    passes: bool = False


class Kind(NamedTuple):
    """What all findings of one code share."""

    severity: Severity
    why: str
    todo: str
    passes: bool = False


_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_REPAIR = "rota cluster doctor --repair"

KINDS: dict[str, Kind] = {
    "no_scheduler": Kind(
        _E,
        "without one, nothing fires in time",
        "start one: rota node start; or name its coordinator: --coordinator URL",
    ),
    "few_schedulers": Kind(
        _W, "when one dies, the others have to do it all, or nobody is left", "start more: rota node start"
    ),
    "no_faults": Kind(_E, "one crash leaves jobs without an owner", "start it with --faults 1 or more"),
    "differing_faults": Kind(_W, "so many may die only if all plan for it", "start them with the same --faults"),
    "differing_placements": Kind(
        _E, "each goes by rules that the others do not know; jobs fire late", "use one placement.kind for all"
    ),
    "no_spare": Kind(_E, "some jobs stay without an owner and fire late", "start more schedulers, or raise --faults"),
    "no_margin": Kind(_W, "the others could not hold all jobs", "start more schedulers, or raise --faults"),
    "unowned": Kind(_E, "they fire late, by the rule for what is overdue", f"wake the schedulers: {_REPAIR}", True),
    "wrong_belief": Kind(_W, "two may try to fire the same job, one in vain", f"let it look again: {_REPAIR}", True),
    "stale_handover": Kind(_W, "their giver is gone, so nobody tidies them up", f"remove them: {_REPAIR}", True),
    "wrong_entry": Kind(
        _W, "schedulers may wait for it in vain", f"they remove it by themselves in a while; at once: {_REPAIR}", True
    ),
    "repaired": Kind(
        _N,
        "the coordinator had lost something or held it wrongly, and all is well again",
        "if it comes again: who else writes there, and what happened to the coordinator?",
    ),
    "unreachable": Kind(
        _W,
        "rounds of who cannot reach it give it nothing; what only it can run starts seconds late",
        "look at the network, and at the address it advertises",
        True,
    ),
    "loopback": Kind(
        _W,
        "nodes run on several hosts, and the others cannot reach it",
        "let it advertise an address that others reach",
    ),
    "unable": Kind(_E, "it is given no items until it can", "make room there; a folder that is gone needs a restart"),
    "not_rescued": Kind(_E, "what it ran is not run again", "start a node: each looks after the others", True),
    "differing_versions": Kind(_W, "fine during an upgrade, not for long", "upgrade the others"),
    "differing_tzdata": Kind(
        _W, "the same cron may mean different instants to them", "install the same version of tzdata everywhere"
    ),
    "clock_skew": Kind(
        _W, "the store's clock decides what fires; logs and tasks go by this one", "set the clock; run a time service"
    ),
    "store_setting": Kind(_E, "what was acknowledged could be lost", "change the setting: docs/stores.md"),
    "history_lost": Kind(
        _W,
        "what was acknowledged last may be gone; slots of that time may have fired again",
        "look for store.lost in the nodes' logs; effects outside are fenced by their tokens",
    ),
    "misplaced": Kind(_E, "they fire late, or count for nothing", f"list them anew: {_REPAIR}"),
    "not_started": Kind(_E, "seats and limits would allow it", "is a dispatcher alive? See: rota node list", True),
    "not_begun": Kind(_E, "its node took it and says nothing", "look at that node's log; end it if it hangs", True),
    "not_runnable": Kind(
        _W, "it waits until somebody can", "start or undrain an executor that can: rota node list", True
    ),
    "unreadable": Kind(
        _E, "this release leaves it to others, if there are any", "ask with the newest release, and upgrade all nodes"
    ),
    "paused": Kind(_N, "nothing of it fires", "when it shall: rota cluster resume"),
    "weak_boundary": Kind(
        _W,
        "processes that detach themselves may outlive it",
        "give it what namespace or cgroup need: docs/boundaries.md",
    ),
    "root_tasks": Kind(
        _N, "they can read all files of root, this node's too", "set executor.user on it: docs/trust.md"
    ),
    "boundary": Kind(_N, "no process outlives its node", ""),
}


def found(code: str, what: str, about: str = "") -> Finding:
    return Finding(code=code, what=what, about=about, **KINDS[code]._asdict())
