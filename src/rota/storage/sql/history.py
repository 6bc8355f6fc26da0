"""The history of a store, and what is done when the latest part of it was lost.

A standby that was promoted, or a backup that was restored, has forgotten what came last; others remember it: ids,
rounds, tokens. So the generation is raised: from then on they are higher than any that were ever given.

    rota_meta: generation   rises by one each time
               raised       when it did last (microseconds), and why
               history      which server, on which timeline, wrote what is here; as far as the database can tell
               unsettled/ID when the generation was raised, for each node that may execute what was lost

Statements are given out one by one, for connections that wait and for those that do not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any

from rota.model.value import encode
from rota.model.work import first_round
from rota.transactions.members import UNSETTLED
from rota.transactions.record import ID_GAP, LAST, RAISED

Rows = Sequence[tuple[Any, ...]]
Statements = Generator[str, Rows, int]


KNOWN = "SELECT name, value FROM rota_meta WHERE name IN ('generation', 'history')"


def adopted(history: str, *, now: str) -> Statements:
    """Note by whom the store was written last, in a transaction; if it was another before, raise the generation."""
    found: dict[str, str] = dict((yield f"{KNOWN} FOR UPDATE"))
    known = found.get("history")
    if known == history:  # somebody else was first
        return int(found["generation"])
    if known is None:
        yield f"INSERT INTO rota_meta (name, value) VALUES ('history', '{history}')"  # noqa: S608 - read from the server
        return int(found["generation"])
    yield f"UPDATE rota_meta SET value = '{history}' WHERE name = 'history'"  # noqa: S608 - read from the server
    return (yield from raised(f"the history of the server was {known} and is {history}", now=now))


def raised(why: str, *, now: str, above: int | None = None, lock: str = " FOR UPDATE") -> Statements:
    """Raise the generation; with `above`, only if it is not higher than that. Returns what it is then."""
    assert "'" not in why, "it becomes a part of a statement"
    ((value,),) = yield f"SELECT value FROM rota_meta WHERE name = 'generation'{lock}"  # noqa: S608 - a constant
    if above is not None and int(value) > above:
        return int(value)
    generation = max(int(value), above or 0) + 1
    yield f"UPDATE rota_meta SET value = '{generation}' WHERE name = 'generation'"  # noqa: S608 - a number
    yield (
        "UPDATE rota_dispatch SET holder = NULL, epoch = epoch + 1, changes = changes + 1, next_at = NULL,"  # noqa: S608
        f" round = {first_round(generation)} WHERE id = 1"
    )
    yield f"UPDATE rota_counter SET next = next + {ID_GAP}"  # noqa: S608 - a constant
    ((event_id,),) = yield "SELECT next FROM rota_counter WHERE name = 'row'"
    yield "UPDATE rota_counter SET next = next + 1 WHERE name = 'row'"
    ((at,),) = yield f"SELECT {now}"
    yield f"DELETE FROM rota_meta WHERE name = '{LAST}'"  # noqa: S608 - a constant
    yield f"INSERT INTO rota_meta (name, value) VALUES ('{LAST}', '{at} {why[:200]}')"  # noqa: S608 - no input in it
    yield from _unsettled(int(at))
    data = encode({"generation": generation, "why": why})
    yield (
        "INSERT INTO rota_event (id, at, kind, actor, job_id, run_id, item_id, data)"  # noqa: S608 - no input in it
        f" VALUES ({event_id}, {at}, '{RAISED}', 'rota', NULL, NULL, NULL, '{data}')"
    )
    return generation


def _unsettled(at: int) -> Generator[str, Rows, None]:
    """List the nodes that have a lease: each may have been given something that nobody knows of now."""
    former = [name for (name,) in (yield "SELECT name FROM rota_meta") if name.startswith(UNSETTLED)]
    for name in former:
        yield f"DELETE FROM rota_meta WHERE name = '{name}'"  # noqa: S608 - written by us
    for (node_id,) in (yield "SELECT node_id FROM rota_lease"):
        yield f"INSERT INTO rota_meta (name, value) VALUES ('{UNSETTLED}{node_id}', '{at}')"  # noqa: S608 - numbers


def run_through(statements: Statements, run: Callable[[str], Rows]) -> int:
    """Run them one after the other; returns what they come to."""
    try:
        statement = next(statements)
        while True:
            statement = statements.send(run(statement))
    except StopIteration as end:
        return int(end.value)


async def run_through_async(statements: Statements, run: Callable[[str], Awaitable[Rows]]) -> int:
    """The same on a connection that is waited for."""
    try:
        statement = next(statements)
        while True:
            statement = statements.send(await run(statement))
    except StopIteration as end:
        return int(end.value)
