"""The JSON of limits and quotas."""

from __future__ import annotations

from rota.control.limits import QuotaState, Removed
from rota.control.shapes.values import Shape, fields_of
from rota.model.work import Limit


def limit_shape(limit: Limit) -> Shape:
    rate = None if limit.rate is None else fields_of(limit.rate, "max", "period_s")
    return {**fields_of(limit, "name", "cap", "weight"), "rate": rate}


def quota_shape(it: QuotaState) -> Shape:
    """A quota of a tenant, with what is ready and what runs of it."""
    limit = limit_shape(it.limit) if it.limit is not None else {"cap": None, "weight": 1, "rate": None}
    limit.pop("name", None)
    named = {"tenant": it.tenant, "quota": it.quota, "is_set": it.limit is not None}
    return {**named, **limit, "ready": it.ready, "running": it.running}


def removed_shape(tenant: str, removed: Removed) -> Shape:
    """A tenant that was removed, with its quotas and what became of its items."""
    return {
        "tenant": tenant,
        "quotas": list(removed.quotas),
        "items_cancelled": removed.ended,
        "items_asked_to_stop": removed.asked,
    }
