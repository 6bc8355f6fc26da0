"""Who listens to entries, and how changes of them are told: one topic for each folder that a transaction changed.

entry:live/a    that entry
entry:live/     several entries directly in that folder
entry:          anything: what was told before may have been missed
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rota.model.entry import folder_of

PREFIX = "entry:"


def topics_of(keys: Iterable[str]) -> list[str]:
    """What to tell of entries that have changed."""
    folders: dict[str, set[str]] = {}
    for key in keys:
        folders.setdefault(folder_of(key), set()).add(key)
    return [PREFIX + (changed.pop() if len(changed) == 1 else f"{folder}/") for folder, changed in folders.items()]


def concerns(topic: str, listened: str) -> bool:
    """Whether a topic tells of a change in a folder that somebody listens to, or of its own entry."""
    if not topic.startswith(PREFIX):
        return False
    name = topic.removeprefix(PREFIX)
    if name.endswith("/"):
        return name[:-1] in (listened, folder_of(listened))
    return not name or listened in (name, folder_of(name))


class Bells:
    """The listeners of one client."""

    def __init__(self) -> None:
        self._listeners: list[tuple[str, Callable[[], None]]] = []

    def add(self, folder: str, wake: Callable[[], None]) -> None:
        self._listeners.append((folder, wake))

    def ring(self, topic: str = PREFIX) -> None:
        """Wake those whom a topic concerns; without one, all."""
        for folder, wake in list(self._listeners):
            if concerns(topic, folder):
                wake()

    def clear(self) -> None:
        self._listeners.clear()
