"""Tables of parts that a plugin package may add to: ours by name, others by entry point.

A plugin declares, for example, in its pyproject.toml:

    [project.entry-points."rota.kinds"]
    sql = "rota_sql:SqlKind"

Ours are found without looking at any package that is installed, so that what does not need a plugin does not pay for
plugins: `rota --help` and most workers load none.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar, cast

from rota.errors import InvalidInput

T = TypeVar("T")


class Registry(Generic[T]):
    """The parts of one group, each by its name. A class is loaded and instantiated when it is first asked for."""

    def __init__(self, group: str, what: str, own: Mapping[str, str]) -> None:
        self.group = group
        self._what = what
        """What such a part is called in messages."""
        self._own = dict(own)
        """By name, where our own parts are: `module:class`, as in an entry point."""
        self._plugins: dict[str, str] | None = None
        self._loaded: dict[str, T] = {}

    @property
    def own_names(self) -> tuple[str, ...]:
        return tuple(self._own)

    @property
    def plugin_names(self) -> tuple[str, ...]:
        """The names that installed packages add, without loading them. Raises `InvalidInput` if two have one name."""
        if self._plugins is None:
            self._plugins = self._discovered()
        return tuple(sorted(self._plugins))

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.own_names, *self.plugin_names)

    def find(self, name: str) -> T:
        """The part of that name. Raises `InvalidInput`: it lists the known names, or says why it cannot be loaded."""
        found = self._loaded.get(name)
        if found is None:
            found = self._loaded[name] = self._load(name)
        return found

    def forget(self) -> None:
        """Look at the installed packages again; for tests."""
        self._plugins = None
        self._loaded.clear()

    def _load(self, name: str) -> T:
        if name not in self._own and name not in self.plugin_names:
            raise InvalidInput.of(name, f"is not a known {self._what}; known are {', '.join(self.names)}")
        where = self._own.get(name) or (self._plugins or {})[name]
        module, _, attribute = where.partition(":")
        try:
            make = cast("Callable[[], T]", getattr(importlib.import_module(module), attribute))
            return make()
        except Exception as error:  # a plugin is foreign code: whatever it raises names the plugin
            why = f"{type(error).__name__}: {error}"
            raise InvalidInput.of(name, f"the plugin {where} ({self.group}) cannot be loaded: {why}") from error

    def _discovered(self) -> dict[str, str]:
        import importlib.metadata  # heavy: only where plugins are looked for

        found: dict[str, str] = {}
        for entry in importlib.metadata.entry_points(group=self.group):
            other = self._own.get(entry.name) or found.get(entry.name)
            if other is not None and other != entry.value:
                both = f"{other} and {entry.value}"
                reason = f"two packages add a {self._what} of this name: {both}; uninstall one of them"
                raise InvalidInput.of(f"{self.group}.{entry.name}", reason)
            if other is None:
                found[entry.name] = entry.value
        return found
