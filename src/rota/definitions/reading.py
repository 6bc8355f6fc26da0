"""Read from disks that may not answer: in threads that nobody waits for in the end."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Do it in a thread of its own, which neither keeps the process nor takes a place from others when it hangs."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(tell_it: Callable[[Any], None], what: object) -> None:
        def now() -> None:
            if not done.done():
                tell_it(what)

        if not loop.is_closed():
            loop.call_soon_threadsafe(now)

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            tell(done.set_exception, error)
        else:
            tell(done.set_result, result)

    threading.Thread(target=run, name="rota-definitions", daemon=True).start()
    return await done


def read_plain(file: Path, limit: int) -> bytes:
    """The beginning of a regular file. Raises OSError, and for everything else than a file too."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "is not a regular file")
        return stream.read(limit)
