"""Who wakes whom on a node that dispatches: what was fired, what ended, and what the store tells."""

from __future__ import annotations

from collections.abc import Sequence

from rota.loops.dispatcher import Dispatcher
from rota.loops.executor import Executor
from rota.loops.finisher import Finisher
from rota.loops.identity import Identity
from rota.loops.scheduler import Scheduler
from rota.ports import Store


def connect(
    store: Store,
    identity: Identity,
    scheduler: Scheduler,
    dispatcher: Dispatcher,
    executor: Executor | None,
    finishers: Sequence[Finisher],
) -> None:
    """Let the loops of a node, and the news of its store, wake each other."""
    if not store.hears:  # nobody else will tell, and while work ends, more may have come
        scheduler.on_fired = lambda _: dispatcher.wake()
        for finisher in finishers:
            finisher.on_finished = dispatcher.wake

    def heard(topic: str) -> None:
        if topic == "dispatch":
            dispatcher.wake()
        elif topic == "seats":
            dispatcher.freed()
        elif executor is not None and topic == f"node:{identity.id}":
            executor.look()

    store.listen(heard)
