"""What a person or a client may ask of rota. The command line and the SDK only translate to this.

Every request may be repeated. One whose answer was lost is repeated here.
"""

from __future__ import annotations

from rota.control.alarms import AlarmControl
from rota.control.assigning import AssignControl
from rota.control.calling import CallControl
from rota.control.cluster import ClusterControl, HoldControl
from rota.control.doctor import DoctorControl, DumpControl
from rota.control.jobs import JobControl
from rota.control.limits import LimitControl
from rota.control.logs import LogControl
from rota.control.nodes import NodeControl
from rota.control.runs import RunControl
from rota.control.survey import patient
from rota.core.cluster import ClusterFacts, Rebalance, Shift
from rota.core.explain import Reason
from rota.core.findings import Finding, Severity
from rota.model.job import JobName
from rota.model.work import Rate
from rota.ports import Clock, Coordinator, LogStore, Store

__all__ = ["ClusterFacts", "Control", "Finding", "Reason", "Rebalance", "Severity", "Shift"]

CAP_MAX = 1_000_000


class Control:
    """All that operators and clients may ask, by family. It needs a store; what is about the cluster needs a
    coordinator too."""

    def __init__(
        self, store: Store, clock: Clock, logs: LogStore | None = None, coordinator: Coordinator | None = None
    ) -> None:
        store = patient(store, clock)
        coordinator = None if coordinator is None else patient(coordinator, clock)
        self.alarms = AlarmControl(store, clock)
        self.jobs = JobControl(store, clock, self.alarms)
        self.runs = RunControl(store, clock)
        self.logs = LogControl(store, clock, logs)
        self.assignments = AssignControl(store, clock)
        self.calls = CallControl(store, clock, self.assignments)
        self.limits = LimitControl(store, clock)
        self.holds = HoldControl(store, clock)
        self.nodes = NodeControl(store, clock, coordinator)
        self.cluster = ClusterControl(store, clock, coordinator)
        self.doctor = DoctorControl(store, clock, coordinator)
        self.dump = DumpControl(store, clock, coordinator)


def job_name(text: str) -> JobName:
    """Read a name as people write it: `name`, `project/name` or `tenant/project/name`."""
    from rota.definitions import requests

    return requests.job_name(text)


def rate_from(value: object) -> Rate | None:
    """Read a rate: a text like `10/60`, a pair, or nothing; raises ValueError."""
    from rota.definitions.assignment import rate_of

    return rate_of(value)


def strict_json(text: str) -> object:
    """Read JSON and refuse keys that come twice; raises ValueError."""
    from rota.definitions import requests

    return requests.strict_json(text)
