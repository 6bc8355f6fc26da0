"""What a person or a client may ask of rota. The command line, the SDK and, later, REST only translate to these verbs.

Every request may be repeated. One whose answer was lost is repeated here.
"""

from __future__ import annotations

from rota.control.alarms import AlarmVerbs, RuleState
from rota.control.assigning import Answer, Assigned, AssignedItem
from rota.control.calling import CallVerbs, Results
from rota.control.cluster import ClusterVerbs, Released, Transfer
from rota.control.doctor import DoctorVerbs
from rota.control.dump import DumpVerbs
from rota.control.holding import HoldVerbs
from rota.control.jobs import Action, JobVerbs, sources_of
from rota.control.limits import KEEP, AnyRate, Keep, LimitVerbs, QuotaState, Removed
from rota.control.logs import LogPiece, LogVerbs
from rota.control.nodes import Load, NodeVerbs
from rota.control.runs import Cancellation, Explained, RunDetail, RunVerbs
from rota.core.cluster import ClusterFacts, Rebalance, Shift
from rota.core.explain import Reason
from rota.core.findings import Finding, Severity
from rota.model.job import JobName
from rota.model.work import Rate

__all__ = [
    "CAP_MAX",
    "KEEP",
    "Action",
    "Answer",
    "AnyRate",
    "Assigned",
    "AssignedItem",
    "Cancellation",
    "ClusterFacts",
    "Control",
    "Explained",
    "Finding",
    "Keep",
    "Load",
    "LogPiece",
    "QuotaState",
    "Reason",
    "Rebalance",
    "Released",
    "Removed",
    "Results",
    "RuleState",
    "RunDetail",
    "Severity",
    "Shift",
    "Transfer",
    "job_name",
    "rate_from",
    "sources_of",
    "strict_json",
]

CAP_MAX = 1_000_000


class Control(
    JobVerbs,
    RunVerbs,
    LimitVerbs,
    CallVerbs,
    NodeVerbs,
    ClusterVerbs,
    HoldVerbs,
    DoctorVerbs,
    DumpVerbs,
    AlarmVerbs,
    LogVerbs,
):
    """All verbs of operators and clients. They need a store; those about the cluster need a coordinator too."""


def job_name(text: str) -> JobName:
    """Read a name as people write it: `name`, `project/name` or `tenant/project/name`."""
    from rota.definitions import requests

    return requests.job_name(text)


def rate_from(value: object) -> Rate | None:
    """Read a rate: a text like `10/60`, a pair, or nothing; raises ValueError."""
    from rota.definitions.limit import rate_of

    return rate_of(value)


def strict_json(text: str) -> object:
    """Read JSON and refuse keys that come twice; raises ValueError."""
    from rota.definitions import requests

    return requests.strict_json(text)
