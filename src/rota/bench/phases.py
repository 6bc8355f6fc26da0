"""The phases of `rota bench dispatch` that need nodes: how many items a second, and how soon one begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event

from rota.bench import judge
from rota.bench.fleet import Fleet, FleetPlan
from rota.bench.offer import NOOP, STAMP, BenchTenants, Offer
from rota.bench.plain import Plain
from rota.bench.raw import ATTEMPT, ITEM, QUEUE, Sample
from rota.model.value import Value
from rota.model.work import quota_limit
from rota.ports import Clock, Store

LOOK_S = 0.25
PATIENCE_S = 60.0
PER_S = 1000
Progress = Callable[[str, int, int], None]


class DispatchWish(Value, frozen=True, kw_only=True):
    """What shall be measured."""

    items: int
    crowd: BenchTenants
    nodes: int
    seats: int
    seconds: float
    idle_starts: int
    history: int = 0


class Phases:
    """Measures one phase after the other, each with nodes of its own."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        plan: FleetPlan,
        conn: Plain,
        offer: Offer,
        wish: DispatchWish,
        progress: Progress,
    ) -> None:
        self._store = store
        self._clock = clock
        self._plan = plan
        self._conn = conn
        self._offer = offer
        self._wish = wish
        self._progress = progress
        self.sample: Sample

    async def throughput(self) -> dict[str, Any]:
        wish, clock = self._wish, self._clock
        with _counted() as sent:
            ready = await self._warm_up_offer()
            async with Fleet(self._plan, self._store, clock) as fleet:
                await self._drained(fleet, "warming up", self._warm)
                self.sample = await self._sampled(ready)
                before, began_s = len(self._offer.run_ids), clock.monotonic()
                await self._offer.at_once(wish.items, lambda done: self._progress("assigning", done, wish.items))
                await self._drained(fleet, "executing", wish.items)
                took_s = clock.monotonic() - began_s
                by_nodes = await fleet.stop()
        made = await judge.attempts(self._conn, self._offer.run_ids[before:])
        all_sent = None if by_nodes is None else by_nodes + sent.count
        return {
            "items_per_s": round(wish.items / took_s, 1),
            "queries_per_item": None if all_sent is None else round(all_sent / (wish.items + self._warm), 3),
            **_judged(made, wish),
        }

    async def latency(self) -> dict[str, Any]:
        wish = self._wish
        if not wish.seconds and not wish.idle_starts:
            return _starts("latency", []) | _starts("idle_start", []) | {"offered_per_s": None}
        async with Fleet(self._plan, self._store, self._clock) as fleet:
            await self._offer.to_each(STAMP)
            await self._drained(fleet, "warming up", self._warm)
            first = len(self._offer.run_ids)
            self._progress("paced", 0, 1)
            paced = await self._offer.paced(PER_S, wish.seconds) if wish.seconds else None
            await self._drained(fleet, "paced", 1)
            second = len(self._offer.run_ids)
            for number in range(wish.idle_starts):
                await self._clock.sleep(0.5 + self._clock.chance())
                await self._offer.one()
                self._progress("single starts", number + 1, wish.idle_starts)
            await self._drained(fleet, "single starts", 1)
        loaded = await judge.attempts(self._conn, self._offer.run_ids[first:second])
        idle = await judge.attempts(self._conn, self._offer.run_ids[second:])
        return (
            _starts("latency", judge.begun_after_ms(loaded))
            | _starts("idle_start", judge.begun_after_ms(idle))
            | {"offered_per_s": None if paced is None else round(paced, 1)}
        )

    @property
    def _warm(self) -> int:
        """Enough to start every worker: as many as each tenant may have at a time."""
        return sum(self._wish.crowd.quotas.values())

    async def _warm_up_offer(self) -> dict[str, dict[str, Any]]:
        """Assign what warms the nodes up; shows the rows of one item while it is ready."""
        await self._offer.to_each(NOOP)
        queue = (await self._conn.records(f"SELECT * FROM {QUEUE} ORDER BY item_id LIMIT 1"))[0]  # noqa: S608 - no input in it
        item = (await self._conn.records(f"SELECT * FROM {ITEM} WHERE id = {queue['item_id']}"))[0]  # noqa: S608 - no input in it
        return {"item": item, "queue": queue}

    async def _sampled(self, ready: dict[str, dict[str, Any]]) -> Sample:
        id_ = ready["item"]["id"]
        ended = await self._conn.records(f"SELECT * FROM {ITEM} WHERE id = {id_}")  # noqa: S608 - no input in it
        attempt = await self._conn.records(f"SELECT * FROM {ATTEMPT} WHERE item_id = {id_}")  # noqa: S608 - no input in it
        return Sample(**ready, ended=ended[0], attempt=attempt[0])

    async def _drained(self, fleet: Fleet, what: str, items: int) -> None:
        """Wait until nothing waits any more. Gives up when nothing has moved for a while: then items are lost."""
        left, moved_s = await judge.waiting(self._conn), self._clock.monotonic()
        while left:
            fleet.check()
            now_s = self._clock.monotonic()
            if now_s - moved_s > PATIENCE_S:
                return
            self._progress(what, max(items - left, 0), items)
            await self._clock.sleep(LOOK_S if left > items / 10 else LOOK_S / 25)
            before, left = left, await judge.waiting(self._conn)
            if left != before:
                moved_s = self._clock.monotonic()
        self._progress(what, items, items)


class _Sent:
    """Statements that this process has sent."""

    count = 0


@contextmanager
def _counted() -> Iterator[_Sent]:
    sent = _Sent()

    def note(*_: object) -> None:
        sent.count += 1

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def _judged(made: list[judge.Made], wish: DispatchWish) -> dict[str, Any]:
    crowd = wish.crowd
    skewed = quota_limit(crowd.names[0], "default")
    at_cap = None if crowd.skew_cap is None else round(judge.share_at_cap(made, skewed, crowd.skew_cap), 3)
    return {
        "lost": judge.lost(made, wish.items),
        "doubled": judge.doubled(made),
        "over_cap": max(judge.over_caps(made, crowd.caps), 0),
        "skewed_at_cap": at_cap,
    }


def _starts(name: str, ranked: list[float]) -> dict[str, float | None]:
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {f"{name}_{word}_ms": judge.at_share(ranked, share) for word, share in shares.items()}
