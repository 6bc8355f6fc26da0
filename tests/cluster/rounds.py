"""Lets the database itself write down what every dispatch round did, in the round's own transaction.

Triggers copy each arrival that is emptied, each grant that is written and each change of the dispatch row into one
table. Rounds are made one after the other under a lock, so its order is theirs; a grant has the number of its round.
A round that was rolled back leaves nothing.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.checkers.order import Freed, Given, Lane, Outside, Round, Waits
from tests.cluster.witness import Witness

_COLUMNS = "kind, a, b, c, d, data"
_TABLE = {
    "postgresql": "CREATE TABLE witness_round (seq BIGSERIAL PRIMARY KEY, kind TEXT, a BIGINT, b BIGINT, c BIGINT,"
    " d BIGINT, data TEXT, tx BIGINT DEFAULT txid_current())",
    "mysql": "CREATE TABLE witness_round (seq BIGINT AUTO_INCREMENT PRIMARY KEY, kind TEXT, a BIGINT, b BIGINT,"
    " c BIGINT, d BIGINT, data LONGTEXT, tx BIGINT DEFAULT 0)",
}
_DEEDS = {
    "arrival": ("DELETE", "OLD.kind, OLD.at, NULL, NULL, NULL, OLD.data"),
    "grant": ("INSERT", "'grant', NEW.round, NEW.at, NEW.node_id, NEW.holder, NEW.data"),
    "dispatch": ("UPDATE", "'dispatch', NEW.round, NEW.epoch, NEW.holder, NEW.changes, NULL"),
}


async def watch_rounds(witness: Witness) -> None:
    """Let the database write from now on."""
    kind = "mysql" if witness.is_mysql else "postgresql"
    await witness.ask(_TABLE[kind])
    for table, (event, values) in _DEEDS.items():
        insert = f"INSERT INTO witness_round ({_COLUMNS}) VALUES ({values})"
        name = f"witness_{table}"
        on = f"AFTER {event} ON rota_{table} FOR EACH ROW"
        if kind == "mysql":
            await witness.ask(f"CREATE TRIGGER {name} {on} {insert}")
            continue
        body = f"$$ BEGIN {insert}; RETURN NULL; END $$"
        await witness.ask(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS {body}")
        await witness.ask(f"CREATE TRIGGER {name} {on} EXECUTE FUNCTION {name}()")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tale:
    """The rounds, and how many of them did not follow one of the same node."""

    rounds: Sequence[Round]
    takeovers: int


async def rounds_of(witness: Witness) -> Tale:
    """Read what the database wrote."""
    lines = await witness.ask(f"SELECT {_COLUMNS}, tx FROM witness_round ORDER BY seq")
    return told(lines if witness.is_mysql else _in_order(lines))


def _in_order(lines: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The lines of a transaction together, those about the dispatch row last: one statement that changes several tables
    tells of them in any order."""
    first = {tx: place for place, (*_, tx) in reversed(list(enumerate(lines)))}
    return sorted(lines, key=lambda line: (first[line[-1]], line[0] == "dispatch"))


def told(lines: Sequence[tuple[Any, ...]]) -> Tale:
    """Put the lines of each round together: what it emptied, then the change of the dispatch row; and what it gave, by
    its number. A grant that was written again, without items that were cancelled meanwhile, counts as written last."""
    known = {(it.item, it.attempt): it for kind, *_, data, _ in lines if kind == "ready" for it in _facts(kind, data)}
    grants = {(a, c): (b, data) for kind, a, b, c, _, data, _ in lines if kind == "grant"}
    by_round: dict[int, list[tuple[int, Given]]] = defaultdict(list)
    times = {number: at for (number, _), (at, _) in grants.items()}
    for (number, node), (_, data) in grants.items():
        by_round[number] += [(place, Given(known[item, attempt - 1], node)) for place, item, attempt in _places(data)]
    rounds: list[Round] = []
    learned: list[Waits | Freed | Outside] = []
    last_epoch, at = None, 0
    for kind, a, b, _, _, data, _ in lines:
        if kind == "dispatch":
            given, at = [it for _, it in sorted(by_round.pop(a, []))], times.get(a, at)
            if given or learned or b != last_epoch:
                rounds.append(Round(number=a, at=at, learned=learned, given=given, exact=b == last_epoch))
                last_epoch, learned = b, []
        elif kind != "grant":
            learned += _facts(kind, data)
    return Tale(rounds=rounds, takeovers=sum(not it.exact for it in rounds))


def _places(data: str) -> Iterator[tuple[int, int, int]]:
    """The positions of a grant: position, item, attempt."""
    for position, item, _, _, _, attempt, *_ in json.loads(data):
        yield position, item, attempt


def _facts(kind: str, data: str) -> Iterator[Any]:
    for record in json.loads(data):
        if kind == "ready":
            item, _, _, lane, start_by, not_before, attempt, *_ = record
            yield Waits(start_by, not_before, item, lane, attempt)
        else:
            yield Outside(record[0]) if kind == "outside" else Freed(record)


async def lanes_of(witness: Witness) -> Mapping[int, Lane]:
    """The lanes, by id."""
    found = {}
    for lane, spec in await witness.ask("SELECT id, spec FROM rota_lane"):
        facts = json.loads(spec)
        quota = f"quota:{facts['tenant']}/{facts.get('quota', 'default')}"
        place = f"{facts.get('group', 'default')} {facts.get('handler', '')}"
        found[lane] = Lane(("global", quota), quota, place)
    return found
