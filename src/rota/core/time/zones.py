"""Time zones: which names are accepted, and how the wall clock of a zone moves.

Wall times are counted like Unix time: seconds from 1970-01-01 00:00 on that wall. A wall clock is a row of stretches in
which it runs evenly; where two stretches meet it may jump ahead (a gap) or back (a fold). Whether summer time or a new
law moved it makes no difference.

The rules come from the `tzdata` package, which every installation has, and never from the operating system: nodes that
disagree on a rule would fire one job at two times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import date, datetime
from functools import cache
from importlib import resources
from typing import NamedTuple
from zoneinfo import ZoneInfo

from rota.errors import InvalidInput

YEAR_MIN = 1970
YEAR_MAX = 2200
"""The last year of which instants are computed."""

DAY_S = 86_400
END_S = (date(YEAR_MAX + 1, 1, 1) - date(1970, 1, 1)).days * DAY_S

NextWall = Callable[[int], int | None]
"""Says the first wall time of interest that is not before the given one."""

_REACH_S = 27 * 3600
"""More than any offset or jump of a clock: what lies further apart in real time is in the same order on the wall."""

_CHUNK_BITS = 25
"""Stretches are looked up and remembered by 2**25 s, about a year."""


def zone(name: str) -> ZoneInfo:
    """Find a zone by its IANA name, spelled exactly so."""
    if not _is_known(name):
        raise InvalidInput.of("zone", f"{str(name)[:40]!a} is not the name of a time zone, such as Europe/Paris or UTC")
    return _load(name)


@cache
def data_version() -> str:
    """Which rules these are, like 2026.1: nodes that have others may take a cron for other instants."""
    from importlib import metadata  # not cheap, and asked for by nodes only

    return metadata.version("tzdata")


def _is_known(name: object) -> bool:
    return isinstance(name, str) and name in _known()


@cache
def _known() -> frozenset[str]:
    names = resources.files("tzdata").joinpath("zones").read_text(encoding="ascii")
    return frozenset(names.split()) - {"Factory"}  # that one means that no zone was chosen


@cache
def _load(name: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@cache
def wall_clock(name: str) -> WallClock:
    """The wall clock of a zone; there is one per zone, because it remembers what it has found out."""
    return WallClock(zone(name))


class Stretch(NamedTuple):
    """A time from `since` until before `until` in which the wall clock is `offset` ahead of UTC.

    `seen` is the first wall time that was not shown before `since`. It equals the wall time at `since` where nothing
    jumps; it is earlier after a gap, and later after a fold, until the repeated time is over.
    """

    since: int
    until: int
    offset: int
    seen: int

    @property
    def opening(self) -> int:
        """The wall time at its begin."""
        return self.since + self.offset

    @property
    def closing(self) -> int:
        """The wall time that it does not reach any more."""
        return self.until + self.offset


class WallClock:
    """How the wall clock of one zone moves, in whole seconds."""

    __slots__ = ("_chunks", "_info")

    def __init__(self, info: ZoneInfo) -> None:
        self._info = info
        self._chunks: dict[int, tuple[list[int], list[Stretch]]] = {}

    def stretch(self, at: int) -> Stretch:
        chunk = self._chunks.get(at >> _CHUNK_BITS)
        if chunk is None:
            stretches = self._stretches(at >> _CHUNK_BITS)
            chunk = self._chunks[at >> _CHUNK_BITS] = ([it.since for it in stretches], stretches)
        begins, stretches = chunk
        return stretches[bisect_right(begins, at) - 1]

    def first(self, at: int, next_wall: NextWall, *, fixed: bool) -> int | None:
        """The first instant, not before `at`, at which the clock shows a wall time of interest.

        Fixed: only if the clock shows it for the first time; and if it jumped over one or more of them, the end of
        the jump stands for all of these. Otherwise: whenever the clock shows one.
        """
        while at < END_S:
            here = self.stretch(at)
            wall = at + here.offset
            if fixed:
                wall = here.seen if at == here.since else max(wall, here.seen)
            found = next_wall(wall)
            if found is not None and found < here.closing:
                return max(found - here.offset, here.since)
            if here.until - at <= _REACH_S:
                at = here.until  # a fold there may show earlier wall times again
            elif found is None:
                return None
            else:
                at = max(here.until, found - _REACH_S)
        return None

    def reach(self, wall: int) -> int:
        """The first instant at which the clock shows this wall time or, in a gap, has jumped over it."""
        here = self.stretch(wall - _REACH_S)
        while here.closing <= wall:
            here = self.stretch(here.until)
        return max(wall - here.offset, here.since)

    def changes(self, after: int, before: int) -> Iterator[int]:
        """The instants between the two at which the offset changes.

        Offsets are compared day by day: no two changes of a zone since 1970 are closer than six days, so none is
        missed (a test watches this for new zone data).
        """
        at, offset = after, self._offset(after)
        while at < before - 1:
            probe = min(at + DAY_S, before - 1)
            if self._offset(probe) != offset:
                probe = self._change(at, probe, offset)
                offset = self._offset(probe)
                yield probe
            at = probe

    def _change(self, low: int, high: int, offset: int) -> int:
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(middle) == offset:
                low = middle
            else:
                high = middle
        return high

    def _offset(self, at: int) -> int:
        offset = datetime.fromtimestamp(at, self._info).utcoffset()
        assert offset is not None, "every zone has an offset"
        return offset.days * DAY_S + offset.seconds

    def _stretches(self, chunk: int) -> list[Stretch]:
        begin, end = chunk << _CHUNK_BITS, (chunk + 1) << _CHUNK_BITS
        earlier = begin - 3 * DAY_S  # what was shown before the chunk decides what is new in it
        begins = sorted({earlier, begin, *self.changes(earlier, end)})
        stretches: list[Stretch] = []
        seen = earlier + self._offset(earlier)
        for since, until in zip(begins, [*begins[1:], end], strict=True):
            offset = self._offset(since)
            stretches.append(Stretch(since, until, offset, seen))
            seen = max(seen, until + offset)
        return [it for it in stretches if it.since >= begin]
