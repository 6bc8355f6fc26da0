"""Alarms in virtual time: the mails of A0.2, channels that hang or fail, crashes, and the levels that end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from rota.alarms.alarmer import LEASE_S, Alarmer
from rota.alarms.levels import LevelWatcher
from rota.alarms.rules import TRIES_MAX
from rota.coordinators.memory import MemoryCoordinator
from rota.core.advance import Advance
from rota.core.define import Delete
from rota.core.dispatch.board import Rounds
from rota.core.start import Start
from rota.errors import StoreUnavailable, Undelivered
from rota.loops.duty import Duty
from rota.loops.in_hand import AttemptsInHand
from rota.loops.placer.claim import ClaimPlacer
from rota.loops.placer.cluster_view import ClusterView
from rota.loops.signals import Signals
from rota.model.alarm import Alarm, AlarmKind, AlarmRule, Channel, ChannelKind, Message
from rota.model.work import Retry
from rota.sim.loop import SimClock, SimLoop, simulate
from rota.storage.memory import MemoryStore
from rota.transactions.alarms import raise_alarms, set_alarm_rule, settle_deliveries
from rota.transactions.change import change
from rota.transactions.finish import finish
from rota.transactions.members import join
from rota.transactions.rescue import rescue
from rota.transactions.round import dispatch
from tests.factories import a_definition, a_new_node, an_attempt, an_end, in_order
from tests.sim.test_placement import SESSION_S, Town, jobs, town
from tests.sim.test_scheduler import define

MAIL = Channel(kind=ChannelKind.MAIL, to=("ops@example.com",))


class Postman:
    """A channel that remembers, and behaves as its rule is named: `hangs`, `fails`, or well."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.tried: Counter[str] = Counter()
        self.stays = asyncio.Event()

    async def send(self, rule: AlarmRule, message: Message) -> str:
        self.tried[rule.name] += 1
        if rule.name == "hangs":
            await asyncio.Event().wait()
        if rule.name == "fails":
            raise Undelivered("refused")
        self.sent.append(message)
        return "250 OK"


class Forgetful(MemoryStore):
    """A store that can be away, and that can die between a message and its mark."""

    away = False
    loses_marks = False
    takes_no_alarms = False

    async def alarm_rules(self) -> tuple[AlarmRule, ...]:
        if self.away:
            raise StoreUnavailable("it is away")
        return await super().alarm_rules()

    async def transact(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if (self.takes_no_alarms and work is raise_alarms) or (self.loses_marks and work is settle_deliveries):
            raise StoreUnavailable("it went away")
        return await super().transact(work, *args, **kwargs)


class Office:
    """A store with alarmers."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.store = Forgetful(SimClock(loop, 1, name="store"), actor="sim")
        self.postman = Postman()
        self.signals = Signals()
        self.live = AttemptsInHand(self.signals)
        self.coordinator_lost = False
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.alarmers: dict[str, Alarmer] = {}

    def start(self, name: str, coordinator: MemoryCoordinator | None = None) -> Alarmer:
        clock = SimClock(self._loop, 1, name=name)
        view = None if coordinator is None else ClusterView(self.store, coordinator, clock)
        alarmer = Alarmer(
            self.store,
            clock,
            name,
            duty=Duty(self.store, coordinator, clock, "alarms", name),
            levels=LevelWatcher(self.store, clock, view, session_s=SESSION_S),
            courier=self.postman,
            is_coordinator_lost=lambda: self.coordinator_lost,
        )
        self.alarmers[name] = alarmer
        self._tasks[name] = asyncio.create_task(alarmer.run())
        return alarmer

    async def kill(self, name: str) -> None:
        """As a process dies: nothing is written on the way."""
        alarmer, task = self.alarmers.pop(name), self._tasks.pop(name)
        for sending in alarmer._deliverer._under_way.values():
            sending.cancel()
        alarmer._deliverer._settled.clear()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def rule(self, name: str = "ops", **fields: Any) -> None:
        await self.store.transact(set_alarm_rule, AlarmRule(name=name, channel=MAIL, **fields))

    async def close(self) -> None:
        for name in list(self._tasks):
            await self.kill(name)

    @property
    def told(self) -> list[tuple[str, int]]:
        return [(str(it.kind), it.count) for it in self.postman.sent]


def office(main: Callable[[Office], Coroutine[Any, Any, None]]) -> None:
    async def run(loop: SimLoop) -> None:
        place = Office(loop)
        try:
            await main(place)
        finally:
            await place.close()

    simulate(run, seed=1)


def happening(place: Office, key: str, **fields: Any) -> Alarm:
    defaults = {"kind": AlarmKind.RUN_FAILED, "scope": "cluster", "text": key}
    return Alarm(**{"key": key, "at": place.store._clock.wall(), **defaults, **fields})


def test_the_mails_of_a_claimer_that_holds_more_than_its_threshold_are_one_for_each_sweep() -> None:
    """A0.2: X > M after an acquisition; nothing at X = M, nothing when another takes the job."""

    async def main(place: Town) -> None:
        postman = Postman()
        await place.store.transact(set_alarm_rule, AlarmRule(name="ops", channel=MAIL, kinds=(AlarmKind.HELD_ABOVE,)))
        place.start("a")
        claimer = place.parts["a"].placer
        assert isinstance(claimer, ClaimPlacer)
        levels = LevelWatcher(place.store, place.clock, None, session_s=SESSION_S)
        duty = Duty(place.store, place.parts["a"].coordinator, place.clock, "alarms", "a")
        alarmer = Alarmer(place.store, place.clock, "a", duty=duty, levels=levels, courier=postman)
        place.parts["a"].keeper.signals.acquired.on(lambda _, held: alarmer.pending.acquired(held, 10))
        telling = asyncio.create_task(alarmer.run())

        async def mails_after(more: int) -> list[str]:
            before = len(postman.sent)
            await jobs(place, more, every_s=10**6)
            await asyncio.sleep(20)
            return [it.first[0].text for it in postman.sent[before:]]

        assert await mails_after(10) == []
        assert len(claimer.held) == 10
        assert await mails_after(1) == ["scheduler a holds 11 jobs, more than 10: add machines"]
        assert await mails_after(4) == ["scheduler a holds 15 jobs, more than 10: add machines"]
        await asyncio.sleep(300)
        assert len(postman.sent) == 2
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)

    town(main, automatic=False)


def test_alarms_that_come_within_the_time_of_their_rule_are_one_message() -> None:
    async def main(place: Office) -> None:
        await place.rule(merge_s=60.0)
        place.start("a")
        for n in range(30):
            await place.store.transact(raise_alarms, [happening(place, str(n))])
            await asyncio.sleep(1)
        assert place.told == []
        await asyncio.sleep(60)
        assert place.told == [("run_failed", 30)]

    office(main)


def test_a_channel_that_hangs_and_one_that_fails_keep_nobody_waiting() -> None:
    async def main(place: Office) -> None:
        for name in ("hangs", "fails", "ops"):
            await place.rule(name, merge_s=0.0)
        alarmer = place.start("a")
        for n in range(5):
            await place.store.transact(raise_alarms, [happening(place, str(n))])
            alarmer.wake()
            await asyncio.sleep(4)
        assert place.told == [("run_failed", 1)] * 5
        await asyncio.sleep(7200)
        assert len(place.postman.sent) == 5
        assert place.postman.tried["fails"] == 5 * TRIES_MAX
        left = (await place.store.deliveries(pending=False)).deliveries
        given_up = [it for it in left if it.rule == "fails"]
        assert len(given_up) == 5
        assert all(it.ended_at is not None and not it.arrived and it.answer == "refused" for it in given_up)
        assert 1 < place.postman.tried["hangs"] <= 5 * TRIES_MAX

    office(main)


def test_what_two_nodes_see_is_sent_once() -> None:
    async def main(place: Office) -> None:
        await place.rule(merge_s=0.0)
        for name in "abc":
            place.start(name)
        for n in range(20):
            await place.store.transact(raise_alarms, [happening(place, str(n))])
            await asyncio.sleep(1.3)
        await asyncio.sleep(10)
        assert sorted(it.first[0].key for it in place.postman.sent) == sorted(str(n) for n in range(20))

    office(main)


def test_a_node_that_dies_between_sending_and_marking_costs_one_more_message() -> None:
    async def main(place: Office) -> None:
        await place.rule(merge_s=0.0)
        place.start("a")
        await asyncio.sleep(3)
        place.store.loses_marks = True
        await place.store.transact(raise_alarms, [happening(place, "x")])
        await asyncio.sleep(10)
        assert len(place.postman.sent) == 1
        await place.kill("a")
        place.store.loses_marks = False
        place.start("b")
        await asyncio.sleep(LEASE_S - 15)
        assert len(place.postman.sent) == 1, "somebody else may still be sending"
        await asyncio.sleep(600)
        assert len(place.postman.sent) == 2
        assert len({it.id for it in place.postman.sent}) == 1, "the receiver can tell"

    office(main)


def test_a_node_whose_mark_is_not_taken_marks_again_and_sends_no_more() -> None:
    async def main(place: Office) -> None:
        await place.rule(merge_s=0.0)
        place.start("a")
        place.store.loses_marks = True
        await place.store.transact(raise_alarms, [happening(place, "x")])
        await asyncio.sleep(LEASE_S / 2)
        place.store.loses_marks = False
        await asyncio.sleep(600)
        assert len(place.postman.sent) == 1
        assert (await place.store.deliveries()).deliveries == ()

    office(main)


def test_a_store_that_was_away_for_long_is_told_with_its_end_and_a_blip_is_not() -> None:
    async def main(place: Office) -> None:
        await place.rule(merge_s=0.0)
        place.start("a")
        await asyncio.sleep(10)
        place.store.away = True
        await asyncio.sleep(2)
        place.store.away = False
        await asyncio.sleep(10)
        assert place.told == []
        place.store.away = True
        await asyncio.sleep(30)
        place.store.away = False
        await asyncio.sleep(10)
        assert sorted(place.told) == [("recovered", 1), ("store_lost", 1)]
        over = next(it for it in place.postman.sent if it.kind is AlarmKind.RECOVERED)
        lasted_s = over.first[0].data["lasted_s"]
        assert isinstance(lasted_s, float)
        assert 28 <= lasted_s <= 34

    office(main)


def test_what_a_node_notices_while_the_store_is_away_is_told_when_it_is_back() -> None:
    async def main(place: Office) -> None:
        await place.rule(kinds=(AlarmKind.HELD_ABOVE,), merge_s=0.0)
        alarmer = place.start("a")
        await asyncio.sleep(10)
        place.store.away = True
        await asyncio.sleep(1)
        for held in (11, 12):
            alarmer.pending.acquired(held, 10)
        await asyncio.sleep(30)
        assert place.told == []
        place.store.away = False
        await asyncio.sleep(10)
        assert place.told == [("held_above", 1)] * 2

    office(main)


def test_what_the_store_has_not_taken_is_kept_in_order() -> None:
    async def main(place: Office) -> None:
        await place.rule(kinds=(AlarmKind.HELD_ABOVE,), merge_s=0.0)
        alarmer = place.start("a")
        await asyncio.sleep(10)
        place.store.takes_no_alarms = True
        for held in (11, 12, 13):
            alarmer.pending.acquired(held, 10)
            await asyncio.sleep(3)
        place.store.takes_no_alarms = False
        await asyncio.sleep(10)
        assert [it.first[0].data["held"] for it in place.postman.sent] == [11, 12, 13]

    office(main)


def test_without_a_session_every_node_tries_and_still_one_sends() -> None:
    async def main(place: Office) -> None:
        await place.rule(merge_s=0.0)
        for name in "ab":
            place.start(name, MemoryCoordinator(place.store.realm, place.store._clock, ttl_s=SESSION_S))
        await place.store.transact(raise_alarms, [happening(place, "x")])
        await asyncio.sleep(20)
        assert place.told == [("run_failed", 1)]

    office(main)


def test_only_the_node_that_has_the_duty_looks_for_what_to_send() -> None:
    async def main(place: Office) -> None:
        await place.rule(merge_s=0.0)
        coordinators = [MemoryCoordinator(place.store.realm, place.store._clock, ttl_s=10**6) for _ in "ab"]
        for name, coordinator in zip("ab", coordinators, strict=True):
            await coordinator.join()
            await coordinator.claim({"duty/alarms": "a"})
            place.start(name, coordinator)
        for n in range(10):
            await place.store.transact(raise_alarms, [happening(place, str(n))])
            await asyncio.sleep(3)
        assert [place.alarmers[name]._deliverer.sent for name in "ab"] == [10, 0]
        await place.kill("a")
        await coordinators[0].leave()
        await place.store.transact(raise_alarms, [happening(place, "last")])
        await asyncio.sleep(20)
        assert place.alarmers["b"]._deliverer.sent == 1

    office(main)


def test_a_lost_coordinator_is_a_level_of_each_node() -> None:
    async def main(place: Office) -> None:
        await place.rule(merge_s=0.0)
        place.start("a")
        await asyncio.sleep(10)
        assert place.told == []
        place.coordinator_lost = True
        await asyncio.sleep(60)
        assert place.told == [("coordinator_lost", 1)]
        await place.kill("a")
        place.coordinator_lost = False
        place.start("a")  # its next incarnation has one
        await asyncio.sleep(10)
        assert place.told == [("coordinator_lost", 1), ("recovered", 1)]

    office(main)


def test_a_node_that_is_gone_and_comes_back_is_told_twice() -> None:
    async def main(place: Office) -> None:
        await place.rule(merge_s=0.0)
        place.start("a")
        gone = await place.store.transact(join, a_new_node("n"), lease_s=5.0)
        await asyncio.sleep(20)
        (node,) = (await place.store.nodes()).nodes
        assert await place.store.transact(rescue, gone.id, node.beat, [], rule=Advance(), margin_s=1.0)
        await asyncio.sleep(30)
        assert place.told == [("node_disconnected", 1)]
        await place.store.transact(join, a_new_node("n"), lease_s=10**6)
        await asyncio.sleep(30)
        assert place.told == [("node_disconnected", 1), ("recovered", 1)]

    office(main)


def test_a_job_without_an_owner_is_told_after_a_session_and_five_seconds() -> None:
    async def main(place: Office) -> None:
        await place.rule(merge_s=0.0)
        clock = place.store._clock
        coordinator = MemoryCoordinator(place.store.realm, clock, ttl_s=10**6)
        await coordinator.join()
        await define(place.store, [a_definition("lonely"), a_definition("owned")])
        await coordinator.claim({"jobs/2": "b"})
        place.start("a", coordinator)
        await asyncio.sleep(SESSION_S + 4)
        assert place.told == []
        await asyncio.sleep(12)
        assert place.told == [("unowned_job", 1)]
        (alarm,) = place.postman.sent[0].first
        assert alarm.scope == "job/default/default/lonely"
        assert alarm.text.startswith("job lonely has had no owner for ")
        await coordinator.claim({"jobs/1": "b"})
        await asyncio.sleep(20)
        assert place.told == [("unowned_job", 1), ("recovered", 1)]
        assert place.postman.sent[1].first[0].text.startswith("over: job lonely ")

    office(main)


def test_failures_reach_the_rules_of_their_scope_with_what_follows() -> None:
    """`on_exhausted: alarm`, and `pause_after`."""

    async def main(place: Office) -> None:
        await place.rule("cluster", merge_s=0.0)
        await place.rule("mine", scope="project/default/default", kinds=(AlarmKind.RUN_FAILED,), merge_s=0.0)
        await place.rule("yours", scope="tenant/acme", merge_s=0.0)
        place.start("a")
        task = a_definition().tasks[0]
        loud = type(task)(
            **{**{it: getattr(task, it) for it in task.__struct_fields__}, "retry": Retry(on_exhausted="alarm")}
        )
        definition = a_definition("nightly", tasks=(loud,), pause_after=1)
        await define(place.store, [definition])
        name = definition.full_name
        await place.store.transact(change, [name], Start(name=name, key="x"))
        node = await place.store.transact(join, a_new_node(), lease_s=10**6)
        (granted,) = in_order(await dispatch(place.store, node.id, Rounds(), batch_max=10))
        await finish(place.store, [an_end(granted, "failed", message="exit code 7")], rule=Advance())
        await asyncio.sleep(20)
        told = Counter((it.rule, str(it.kind)) for it in place.postman.sent)
        wanted = [("cluster", kind) for kind in ("run_failed", "exhausted", "job_paused")]
        assert told == Counter([*wanted, ("mine", "run_failed")])
        failed = next(it for it in place.postman.sent if it.rule == "mine")
        assert failed.first[0].text == f"run {granted.run_id} of job nightly failed: exit code 7"

    office(main)


def test_a_job_that_works_again_after_failures_is_told_as_recovered_once() -> None:
    async def main(place: Office) -> None:
        await place.rule(scope="job/default/default/nightly", merge_s=0.0)
        place.start("a")
        definition = a_definition("nightly")
        await define(place.store, [definition])
        node = await place.store.transact(join, a_new_node(), lease_s=10**6)
        rounds = Rounds()

        async def ends(outcome: str, key: str) -> list[tuple[str, int]]:
            before = len(place.told)
            await place.store.transact(change, [definition.full_name], Start(name=definition.full_name, key=key))
            (granted,) = in_order(await dispatch(place.store, node.id, rounds, batch_max=10))
            await finish(place.store, [an_end(granted, outcome)], rule=Advance())
            await asyncio.sleep(20)
            return place.told[before:]

        assert await ends("succeeded", "1") == []
        assert await ends("failed", "2") == [("run_failed", 1)]
        assert await ends("failed", "3") == [("run_failed", 1)]
        assert await ends("succeeded", "4") == [("recovered", 1)]
        (told,) = place.postman.sent[-1].first
        assert told.text == "over: job nightly fails, since run 2"
        assert await ends("succeeded", "5") == []
        assert await ends("failed", "6") == [("run_failed", 1)]
        assert await ends("succeeded", "7") == [("recovered", 1)]

    office(main)


def test_a_failing_job_that_is_deleted_fails_no_more() -> None:
    async def main(place: Office) -> None:
        await place.rule(merge_s=0.0)
        place.start("a")
        definition = a_definition("nightly")
        await define(place.store, [definition])
        node = await place.store.transact(join, a_new_node(), lease_s=10**6)
        await place.store.transact(change, [definition.full_name], Start(name=definition.full_name, key="x"))
        (granted,) = in_order(await dispatch(place.store, node.id, Rounds(), batch_max=10))
        await finish(place.store, [an_end(granted, "failed")], rule=Advance())
        await asyncio.sleep(20)
        assert [it.kind for it in await place.store.alarms(open_=True)] == [AlarmKind.JOB_FAILING]
        await place.store.transact(change, [definition.full_name], Delete())
        await asyncio.sleep(20)
        assert await place.store.alarms(open_=True) == ()

    office(main)


def test_attempts_that_start_late_or_take_long_are_told() -> None:
    async def main(place: Office) -> None:
        await place.rule(merge_s=0.0, late_s=10.0)
        alarmer = place.start("a")
        place.signals.attempt_began.on(alarmer.pending.began)
        place.signals.attempt_warned.on(alarmer.pending.warned)
        await asyncio.sleep(10)
        now_s, now = asyncio.get_running_loop().time(), place.store._clock.wall()
        for item_id, late_s in ((1, 9.0), (2, 11.0), (3, 500.0)):
            attempt = an_attempt(
                item_id,
                1 if item_id < 3 else 2,
                run_id=item_id,
                runner="shell",
                start_by_at=now - timedelta(seconds=late_s),
            )
            place.live.add([attempt])
        place.live.started([(1, 1, now_s), (2, 1, now_s), (3, 2, now_s)])
        place.live.warned(1, 1, "takes longer than 5 s")
        await asyncio.sleep(10)
        told = {(str(it.kind), it.first[0].run_id): it.first[0].data for it in place.postman.sent}
        assert set(told) == {("late_start", 2), ("long_run", 1)}
        assert told["late_start", 2]["late_s"] == 11.0

    office(main)


def test_without_rules_nothing_is_kept() -> None:
    async def main(place: Office) -> None:
        alarmer = place.start("a")
        alarmer.pending.acquired(11, 10)
        await asyncio.sleep(20)
        assert alarmer.pending.late_s is None
        await place.rule(merge_s=0.0)
        await asyncio.sleep(20)
        assert place.told == []

    office(main)
