"""Who listens to which folder. It only wakes; what has changed is found by reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rota.model.entry import folder_of


class SessionWatcher:
    """The listeners of one client."""

    def __init__(self) -> None:
        self._wakes: dict[str, list[Callable[[], None]]] = {}

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(self._wakes)

    def add(self, folder: str, wake: Callable[[], None]) -> None:
        self._wakes.setdefault(folder, []).append(wake)

    def heard(self, keys: Iterable[str]) -> None:
        """Something has happened to keys: for each as a folder, and for the folder it is in."""
        changed = {folder for key in keys for folder in (key, folder_of(key))}
        for folder in self.folders:
            if folder in changed:
                self.wake(folder)

    def wake(self, folder: str) -> None:
        for wake in self._wakes.get(folder, ()):
            wake()
