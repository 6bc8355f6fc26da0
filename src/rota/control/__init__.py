"""What a person or a client may ask of rota. The command line, the SDK and, later, REST only translate to these verbs.

A request whose answer was lost is asked again here: every one of them may be repeated.
"""

from __future__ import annotations

from rota.control.alarms import Alarms, RuleState
from rota.control.assigning import Answer, Assigned, AssignedItem
from rota.control.calling import Calling, Results
from rota.control.cluster import Cluster, Given, Released
from rota.control.doctor import Doctor
from rota.control.dump import Dump
from rota.control.holding import Holding
from rota.control.jobs import Action, Jobs, sources_of
from rota.control.limits import KEEP, AnyRate, Keep, Limits, QuotaState, Removed
from rota.control.logs import LogPiece, Logs
from rota.control.nodes import Load, Nodes
from rota.control.runs import Cancellation, Explained, RunDetail, Runs
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
    "Given",
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
    "job_name",
    "rate_from",
    "sources_of",
    "strict_json",
]

CAP_MAX = 1_000_000


class Control(Jobs, Runs, Limits, Calling, Nodes, Cluster, Holding, Doctor, Dump, Alarms, Logs):
    """The verbs of an operator and of a client, over a store and, where it is about the cluster, a coordinator."""


def job_name(text: str) -> JobName:
    """Read a name as people write it: `name`, `project/name` or `tenant/project/name`."""
    from rota.definitions import asked

    return asked.job_name(text)


def rate_from(value: object) -> Rate | None:
    """Read a rate: a text like `10/60`, a pair, or nothing; raises ValueError."""
    from rota.definitions.limit import rate_of

    return rate_of(value)


def strict_json(text: str) -> object:
    """Read JSON that says everything once; raises ValueError."""
    from rota.definitions import asked

    return asked.strict_json(text)
