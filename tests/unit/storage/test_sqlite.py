"""SQLite files that several processes open at once."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier, Event

from sqlalchemy import Connection

from rota.clock import SystemClock
from rota.storage.sql.connect import connect
from rota.storage.sql.sqlite import FileDatabase

FILES, OPENERS = 200, 4
HELD_S, FREE_S, RENEWALS = 0.12, 0.006, 10


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


def _note(number: int, conn: Connection) -> None:
    conn.exec_driver_sql("INSERT INTO beat VALUES (?)", (number,))


async def test_a_renewal_gets_a_file_that_another_writer_lets_go_of_for_moments(tmp_path: Path) -> None:
    """SQLite by itself would look ever more seldom, and all other writes of the node would wait behind the renewal."""
    path = tmp_path / "busy.db"
    database = connect(f"sqlite:///{path}", SystemClock())
    await database.write(lambda conn: conn.exec_driver_sql("CREATE TABLE beat (number INTEGER)"))
    turns, held, over = 0, Event(), Event()

    def hog() -> None:
        nonlocal turns
        holder = sqlite3.connect(path, isolation_level=None)
        while not over.is_set():
            holder.execute("BEGIN IMMEDIATE")
            held.set()
            over.wait(HELD_S)
            held.clear()
            holder.execute("ROLLBACK")
            turns += 1
            over.wait(FREE_S)
        holder.close()

    with ThreadPoolExecutor(1) as threads:
        hogging = threads.submit(hog)
        try:
            for number in range(RENEWALS):
                await asyncio.to_thread(held.wait)
                await database.beat(partial(_note, number))
        finally:
            over.set()
            hogging.result()
    await database.close()
    assert turns <= 2 * RENEWALS, turns
