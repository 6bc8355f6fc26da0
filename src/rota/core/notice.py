"""Notices: what the listeners of a client's app are told about an assigned item (S2.5, S2.17).

A notice is an item itself, made in the transaction that it tells of: it is dispatched, retried and rescued like any.
"""

from __future__ import annotations

from rota.model.dispatch import ItemEnd
from rota.model.listener import listener_name
from rota.model.states import ItemState, Outcome
from rota.model.value import Json, decode
from rota.model.work import Assignment, Backoff, BackoffKind, NewTask, Retry, Work, token_of

ON_FAIL = "on_fail"
ON_TIMEOUT = "on_timeout"
PATIENT = Retry(max=10, backoff=Backoff(kind=BackoffKind.EXPONENTIAL, seconds=(1.0,), max_s=300.0))


def notices(end: ItemEnd, work: Work, number: str | None, info: str | None) -> list[Assignment]:
    """What must be told after this end: that an attempt timed out, that the item has finally failed."""
    wanted = [
        ON_TIMEOUT if end.outcome == Outcome.TIMED_OUT else None,
        ON_FAIL if end.state == ItemState.FAILED else None,
    ]
    return [_notice(name, end, work, number, info) for name in wanted if name is not None and name in work.notify]


def _notice(listener: str, end: ItemEnd, work: Work, number: str | None, info: str | None) -> Assignment:
    about: dict[str, Json] = {
        "id": end.item_id,
        "uuid": str(end.item_id),  # what nodes of release 0.1 look for
        "token": token_of(end.round, end.attempt),
        "number": number,
        "info": None if info is None else decode(info, object),  # type: ignore[dict-item]
        "attempt": end.attempt,
        "message": end.message,
    }
    name = f"{listener}:{end.item_id}.{end.attempt}"
    handler = listener_name(work.listening, listener)
    told = Work(tenant=work.tenant, quota=work.quota, group=work.group, handler=handler, retry=PATIENT)
    return Assignment(key=name, work=told, tasks=(NewTask(number=name, info=about),))
