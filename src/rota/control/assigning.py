"""Assign items, and report the ends of those that a client finishes itself (S2.16 to S2.21).

A result counts once (P7): `finish` is accepted only for the attempt under way. Any other report changes nothing.
"""

from __future__ import annotations

import json as json_text
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from rota.control.survey import Family
from rota.core.advance import Advance
from rota.core.notice import notices
from rota.core.retry import after
from rota.errors import InvalidInput, Refused, old_name
from rota.model.dispatch import ItemEnd
from rota.model.moment import micros
from rota.model.states import ItemState, Outcome
from rota.model.work import MESSAGE_MAX, RESULT_MAX, Assignment, Queued, Retry, Work, token_of
from rota.transactions.assign import assign
from rota.transactions.finish import extend, finish

ID_MAX = 2**63 - 1
UNDER_WAY = (ItemState.ASSIGNED, ItemState.RUNNING)


class AssignedItem(NamedTuple):
    """An assigned item: its id in rota, and the number that the client gave it."""

    id: int
    number: str

    @property
    def uuid(self) -> str:
        """The name that `id` had in release 0.1."""
        return old_name("AssignedItem.uuid", "id", str(self.id))


class Assigned(NamedTuple):
    """The run that one call of `assign` made."""

    id: int
    items: tuple[AssignedItem, ...]

    @property
    def run_id(self) -> int:
        """The name that `id` had in release 0.1."""
        return old_name("Assigned.run_id", "id", self.id)


class Answer(StrEnum):
    """`finished`: it counts, now or since an earlier call. `stale`: that attempt is not the one that is under way, so
    nothing was changed. `unknown`: there is no such item."""

    FINISHED = "finished"
    STALE = "stale"
    UNKNOWN = "unknown"


class AssignControl(Family):
    async def assign(
        self,
        tenant: str,
        numbers: Sequence[str],
        infos: Sequence[Any] | None = None,
        *,
        key: str | None = None,
        **given: Any,
    ) -> Assigned:
        """Make one run of items for a tenant. What else may be given: see `AsyncClient.assign`."""
        from rota.definitions.assignment import assignment
        from rota.definitions.requests import run_key

        own_key = self._clock.token() if key is None else run_key(key)
        wanted = assignment(own_key, tenant, numbers, infos, **given)
        if wanted.start_at is None and wanted.end_at is not None:
            wanted = await self._from_now_on(wanted, is_repeatable=key is not None)
        must_exist = (wanted.work.tenant, wanted.work.quota) != ("default", "default")
        return await self.assigned(wanted, quota_must_exist=must_exist)

    async def assigned(self, wanted: Assignment, *, quota_must_exist: bool) -> Assigned:
        """Make the run of an assignment that was checked."""
        run = await assign(self._store, wanted, quota_must_exist=quota_must_exist)
        items = await self._store.items(run.id)
        return Assigned(run.id, tuple(AssignedItem(item.id, item.number or "") for item in items))

    async def finish(
        self, item: int | str, token: int | None = None, *, result: Any = None, failed: str | None = None
    ) -> Answer:
        """Report the end of an item that is finished from outside. With a token it counts for that attempt only;
        without one only while the first attempt is under way. `failed` reports a failure; then the retry policy
        decides."""
        item_id, end = _item_id(item), _reported(result, failed)
        claimed = _claimed(token)
        return await self._finish(item_id, claimed, end)

    async def extend(self, item: int | str, seconds: float, token: int | None = None) -> datetime | None:
        """Give an item that is finished from outside more time, counted from now; says until when. None: it is not
        under way any more, and nothing was changed."""
        from rota.definitions.assignment import EXTEND_S_MAX
        from rota.definitions.fields import number, one

        one("seconds", number(0.1, EXTEND_S_MAX, "number of seconds"), seconds)
        item_id, claimed = _item_id(item), _claimed(token)
        queued = await self._under_way(item_id, claimed)
        if queued is None:
            return None
        await self._refuse_own(queued)
        return await self._store.transact(extend, item_id, queued.attempt, seconds)

    async def _from_now_on(self, wanted: Assignment, *, is_repeatable: bool) -> Assignment:
        """Refuse an end that has passed. With a key, though, it may be a repetition of a call that came in time."""
        now = await self._store.now()
        assert wanted.end_at is not None
        if wanted.end_at >= now:
            return wanted
        if not is_repeatable:
            raise InvalidInput.of("end_at", f"has passed: {wanted.end_at.isoformat()} is before {now.isoformat()}")
        return msgspec.structs.replace(wanted, end_at=now)

    async def _finish(self, item_id: int, claimed: _Claim, end: _Reported) -> Answer:
        queued = await self._under_way(item_id, claimed)
        if queued is None:
            return await self._too_late(item_id, claimed, end)
        work = await self._refuse_own(queued)
        written = _end(queued, end, work.retry, self._clock.chance())
        told = await self._notices(written, work) if work.notify and end.outcome is not Outcome.SUCCEEDED else []
        done = await finish(self._store, [written], rule=Advance(), notices={item_id: told})
        return await self._too_late(item_id, claimed, end) if item_id in done.stale else Answer.FINISHED

    async def _under_way(self, item_id: int, claimed: _Claim) -> Queued | None:
        """Return the item if this attempt is under way and has not timed out; otherwise None."""
        found = await self._store.queued(item_ids=[item_id])
        if not found or not claimed(found[0].round, found[0].attempt) or found[0].state not in UNDER_WAY:
            return None
        expires_at = found[0].expires_at
        if expires_at is not None and await self._store.now() >= expires_at:
            return None
        return found[0]

    async def _notices(self, end: ItemEnd, work: Work) -> list[Assignment]:
        (item,) = (await self._store.loads([end.item_id])).items
        return notices(end, work, item.number, item.info)

    async def _refuse_own(self, queued: Queued) -> Work:
        """Only items of assignments without a handler are finished from outside. Says what they share."""
        runs = await self._store.runs_of([queued.run_id])
        work = runs[0].work if runs else None
        if work is None or work.handler is not None:
            raise Refused(
                f"item {queued.item_id} of run {queued.run_id} is executed by rota, which reports its end itself"
            )
        return work

    async def _too_late(self, item_id: int, claimed: _Claim, end: _Reported) -> Answer:
        """What to answer when nothing was changed. A report that was made already, and counted, is told so: its answer
        may have been lost."""
        items = (await self._store.loads([item_id])).items
        if not items:
            return Answer.UNKNOWN
        ended = await self._store.attempts(items[0].run_id)
        mine = [it for it in ended if it.item_id == item_id and claimed(it.round, it.attempt)]
        same = end.outcome is Outcome.FAILED or items[0].result == end.result
        repeated = bool(mine) and mine[0].outcome is end.outcome and same
        return Answer.FINISHED if repeated else Answer.STALE


class _Reported(NamedTuple):
    outcome: Outcome
    result: str | None
    message: str


def _reported(result: Any, failed: str | None) -> _Reported:
    if failed is None:
        return _Reported(Outcome.SUCCEEDED, _result(result), "")
    if result is not None:
        raise InvalidInput.of("result", "does not go with failed")
    if not isinstance(failed, str):
        raise InvalidInput.of("failed", "must be text that says what went wrong")
    message = failed[:MESSAGE_MAX].encode(errors="backslashreplace").decode().replace("\0", "\\x00")
    return _Reported(Outcome.FAILED, None, message or "reported as failed")


def _result(value: Any) -> str | None:
    if value is None:
        return None
    try:
        text = json_text.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput.of("result", f"cannot be written as JSON: {error}") from None
    if size > RESULT_MAX:
        raise InvalidInput.of("result", f"takes {size} bytes as JSON; at most {RESULT_MAX} are kept")
    return text


def _end(queued: Queued, end: _Reported, retry: Retry, chance: float) -> ItemEnd:
    following = after(end.outcome, "", failures=queued.failures, losses=queued.losses, retry=retry, chance=chance)
    return ItemEnd(
        item_id=queued.item_id,
        attempt=queued.attempt,
        run_id=queued.run_id,
        job_id=queued.job_id,
        lane_id=queued.lane_id,
        outcome=end.outcome,
        state=following.state,
        delay_s=following.delay_s,
        failures=following.failures,
        losses=following.losses,
        node_id=queued.node_id,
        round=queued.round,
        assigned_us=None if queued.assigned_at is None else micros(queued.assigned_at),
        started_us=None if queued.started_at is None else micros(queued.started_at),
        message=following.message or end.message,
        result=end.result,
    )


_Claim = Callable[[int | None, int], bool]
"""Whether an attempt (the round that gave it out, and its number) is the one that a client speaks of."""


def _claimed(token: int | None) -> _Claim:
    """Return a check for the attempt of a token; without a token, it accepts the first attempt only."""
    if token is None:
        return lambda _round, attempt: attempt == 1
    if isinstance(token, bool) or not isinstance(token, int):
        raise InvalidInput.of("token", "must be the number that on_start was given")
    return lambda round_, attempt: token == token_of(round_, attempt)


def _item_id(item: object) -> int:
    """Read the id of an item: a number, or its text."""
    text = str(item) if isinstance(item, int) and not isinstance(item, bool) else item
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 20 and 0 < int(text) <= ID_MAX:
        return int(text)
    raise InvalidInput.of("item", f"must be the id of an item, as assign returned it, not {item!r:.100}")
