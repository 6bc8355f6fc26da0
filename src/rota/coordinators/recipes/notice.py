"""Notices: a word to whoever listens that something of a topic has changed. It says nothing more, and may be lost."""

from __future__ import annotations

from collections.abc import Callable

from rota.coordinators.recipes.lasting import put_lasting
from rota.model.folders import NOTICE
from rota.ports import Clock, Coordinator


async def notify(coordinator: Coordinator, clock: Clock, topic: str) -> None:
    """Wake whoever listens to a topic."""
    await put_lasting(coordinator, f"{NOTICE}/{topic}", clock.token())


def on_notice(coordinator: Coordinator, topic: str, wake: Callable[[], None]) -> None:
    """Call `wake` after a notice of this topic."""
    coordinator.listen(f"{NOTICE}/{topic}", wake)
