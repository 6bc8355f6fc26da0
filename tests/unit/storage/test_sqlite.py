"""SQLite files that several processes open at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from rota.clock import SystemClock
from rota.storage.sql.connect import connect
from rota.storage.sql.sqlite import FileDatabase

FILES, OPENERS = 200, 4


def test_many_may_open_a_new_file_at_the_same_time(tmp_path: Path) -> None:
    barrier = Barrier(OPENERS)

    def open_at_once(path: Path) -> None:
        database = connect(f"sqlite:///{path}", SystemClock())
        assert isinstance(database, FileDatabase)
        barrier.wait()
        database._engine.connect().close()
        database._engine.dispose()

    with ThreadPoolExecutor(OPENERS) as threads:
        for number in range(FILES):
            list(threads.map(open_at_once, [tmp_path / f"{number}.db"] * OPENERS))
