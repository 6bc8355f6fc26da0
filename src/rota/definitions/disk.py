"""Read files from disks that may hang: in threads of their own, which do not keep the process from ending."""

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
    """Run `work` in a daemon thread of its own. If it hangs, the process can still end, and no pool loses a thread."""
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
