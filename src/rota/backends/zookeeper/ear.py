"""Who listens to which folder. It only wakes; what has changed is found by reading."""

from __future__ import annotations

from collections.abc import Callable

from rota.model.entry import folder_of


class Ear:
    """The listeners of one client."""

    def __init__(self) -> None:
        self._wakes: dict[str, list[Callable[[], None]]] = {}

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(self._wakes)

    def add(self, folder: str, wake: Callable[[], None]) -> None:
        self._wakes.setdefault(folder, []).append(wake)

    def heard(self, key: str) -> None:
        """Something has happened to a key: for itself as a folder, and for the folder it is in."""
        for folder in (key, folder_of(key)) if key else ("",):
            self.wake(folder)

    def wake(self, folder: str) -> None:
        for wake in self._wakes.get(folder, ()):
            wake()
