"""What runs transactions: the part of a store that the functions of this package ask for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from rota.model.dispatch import Draft, ItemEnd, Seen, TargetRow
from rota.transactions.tx import ProcessMemory, Tx

P = ParamSpec("P")
T = TypeVar("T")


class RoundIO(Protocol):
    """How a round is read and written."""

    takes_over: bool
    """Whether a round may be made by who did not make the last one, or after limits or members have changed; and
    whether the starts that rates remember are written."""

    def look(self, tx: Tx) -> Seen: ...

    def targets(self, tx: Tx, seen: Seen) -> tuple[int, Sequence[TargetRow]]:
        """The clock, and the nodes that may be given something: after everything else was read."""

    def write(self, tx: Tx, seen: Seen, draft: Draft) -> Collection[int] | None:
        """Write a round; returns the items that were still there. None: nothing was written, somebody else has made a
        round or changed what this one rests on."""


class Shortcuts(NamedTuple):
    """What a database can do in fewer statements than the plain functions need."""

    round: RoundIO | None = None
    end_items: Callable[[Tx, Sequence[ItemEnd]], set[int]] | None = None
    """Write plain ends in one statement; returns the items that were ended."""


class Transactor(ABC):
    """Runs functions of a transaction. Each may be repeated after `StoreUnavailable` or `CommitUnknown`: what was
    already done is found done."""

    memory: ProcessMemory
    shortcuts: Shortcuts

    @abstractmethod
    async def transact(self, work: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in a transaction and commit it durably; again, from the start, if it lost a race. So `work`
        changes nothing but through what it is given."""

    async def write_once(self, work: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for `work` that locks nothing and writes once, at its end: a database may need fewer messages."""
        return await self.transact(work, *args, **kwargs)

    @abstractmethod
    async def look(self, work: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` that only reads. It is no transaction: each statement sees what is committed when it is made."""

    async def reserve_rows(self, count: int) -> None:  # noqa: B027 - where nobody waits, there is nothing to do
        """Have the ids of so many rows at hand, so that nobody waits for the counter while they are written."""
