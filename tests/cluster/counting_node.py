"""A node that counts the statements that it sends to SQLite, by SQLite's own trace, in the file that it is told of."""

import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from tests.cluster.node import main

EVERY_S = 0.5


def count_in(path: Path) -> None:
    """Count from now on, and write the count now and then."""
    total = 0

    def note(_: str) -> None:
        nonlocal total
        total += 1

    @event.listens_for(Engine, "connect")
    def trace(conn: Any, _: object) -> None:
        if isinstance(conn, sqlite3.Connection):
            conn.set_trace_callback(note)

    def tell() -> None:
        while True:
            path.write_text(str(total))
            time.sleep(EVERY_S)

    threading.Thread(target=tell, daemon=True).start()


if __name__ == "__main__":
    place = sys.argv.index("--count")
    count_in(Path(sys.argv[place + 1]))
    del sys.argv[place : place + 2]
    main()
