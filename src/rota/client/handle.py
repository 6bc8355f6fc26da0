"""What a call of a task gives back: a handle, by which its result is fetched when there is one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from rota.errors import TaskFailed
from rota.model.run import Item
from rota.model.states import ItemState

if TYPE_CHECKING:
    from rota.client.client import Client
    from rota.client.view import RunView

R = TypeVar("R")


class Handle(Generic[R]):
    """A call that was sent. Wait for its result with `result(timeout=10)`, or with `await`."""

    def __init__(self, client: Client, run_id: int, item_id: int, *, what: str, convert: Callable[[Any], R]) -> None:
        self._client = client
        self._what = what
        self._convert = convert
        self.id = run_id
        """The run. Those of one `map` share it."""
        self.item_id = item_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._what}, run {self.id}, item {self.item_id}>"

    def result(self, timeout: float | None = None) -> R:
        """What the function returned, as soon as it has.

        Raises TaskFailed, with the reason and the remote traceback, if it did not succeed; TimeoutError, which says
        what the call waits for, after so many seconds. The call itself goes on then; see `cancel`.
        """
        return self._read(self._client.wait(self.id, [self.item_id], timeout, what=self._what)[0])

    def __await__(self) -> Generator[Any, None, R]:
        return self._awaited().__await__()

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return any(item.ended_at is not None for item in self.run().items if item.id == self.item_id)

    def run(self) -> RunView:
        """The run as it is now."""
        return self._client.run(self.id)

    def explain(self) -> list[str]:
        """Why it has not ended, in words."""
        return [it.text for it in self._client.explain(self.id).reasons if it.item_id in (None, self.item_id)]

    def cancel(self) -> None:
        """Cancel the run, with all calls of the same `map`: what has not started is gone, the rest is asked to stop."""
        self._client.cancel(self.id)

    async def _awaited(self) -> R:
        return self._read((await self._client.wait_async(self.id, [self.item_id], what=self._what))[0])

    def _read(self, item: Item) -> R:
        if item.state is ItemState.SUCCEEDED:
            return self._convert(item.value)
        told = {"state": str(item.state), "message": item.message or "", "traceback": item.traceback}
        raise TaskFailed(self._what, run_id=self.id, **told) from self._client.raised(item.id)


class MapHandle(Sequence[Handle[R]]):
    """The calls of one `map`, in their order: one run."""

    def __init__(self, handles: Sequence[Handle[R]]) -> None:
        self._handles = tuple(handles)
        self.id = self._handles[0].id
        """The run."""

    @overload
    def __getitem__(self, place: int) -> Handle[R]: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Handle[R]]: ...

    def __getitem__(self, place: int | slice) -> Handle[R] | Sequence[Handle[R]]:
        return self._handles[place]

    def __len__(self) -> int:
        return len(self._handles)

    def __iter__(self) -> Iterator[Handle[R]]:
        return iter(self._handles)

    def __repr__(self) -> str:
        return f"<MapHandle of {len(self)} calls, run {self.id}>"

    def result(self, timeout: float | None = None) -> list[R]:
        """What all of them returned, in their order. Raises as `Handle.result` does, for the first that failed; the
        time is for all together."""
        first = self._handles[0]
        ids = [it.item_id for it in self._handles]
        items = first._client.wait(self.id, ids, timeout, what=first._what)  # noqa: SLF001 - of the same module
        return [handle._read(item) for handle, item in zip(self._handles, items, strict=True)]  # noqa: SLF001

    def __await__(self) -> Generator[Any, None, list[R]]:
        return self._awaited().__await__()

    def cancel(self) -> None:
        """Cancel what has not started; ask the rest to stop."""
        self._handles[0].cancel()

    async def _awaited(self) -> list[R]:
        first = self._handles[0]
        ids = [it.item_id for it in self._handles]
        items = await first._client.wait_async(self.id, ids, what=first._what)  # noqa: SLF001
        return [handle._read(item) for handle, item in zip(self._handles, items, strict=True)]  # noqa: SLF001
