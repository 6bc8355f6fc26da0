"""The parts that transactions are made of, and how many of them go into one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rota.coordinators.etcd.wire import Compare, DeleteRange, Op, Put, Range, Txn

RANGE, PUT, TXN = "/v3/kv/range", "/v3/kv/put", "/v3/kv/txn"
STEPS_MAX = 100
"""A transaction may have 128 parts; those inside it count on top of it."""
BYTES_MAX = 1_000_000
"""A request may have 1.5 MiB."""

Item = tuple[str, bytes]


def end_of(prefix: bytes) -> bytes:
    """The first key behind all that start so."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def exists(key: bytes) -> Compare:
    return Compare(key=key, target="CREATE", result="GREATER", create_revision=0)


def created_at(key: bytes, revision: int) -> Compare:
    """The condition that a key was made at this revision; at 0: that it is not there."""
    return Compare(key=key, target="CREATE", create_revision=revision)


def written_at(key: bytes, revision: int) -> Compare:
    return Compare(key=key, target="MOD", mod_revision=revision)


def leased_by(key: bytes, lease: int) -> Compare:
    """The condition that a key is a claim of this lease; of 0: that it lasts, or is not there."""
    return Compare(key=key, target="LEASE", lease=lease)


def putting(key: bytes, value: bytes, lease: int = 0) -> Op:
    return Op(request_put=Put(key=key, value=value, lease=lease))


def deleting(key: bytes) -> Op:
    return Op(request_delete_range=DeleteRange(key=key))


def nested(txn: Txn) -> Op:
    """A transaction as a part of another: its conditions are its own."""
    return Op(request_txn=txn)


def claiming(key: bytes, value: bytes, lease: int) -> Op:
    """Take a key that is not there; else look who has it."""
    look = Op(request_range=Range(key=key, keys_only=True))
    return nested(Txn(compare=(created_at(key, 0),), success=(putting(key, value, lease),), failure=(look,)))


def holding(key: bytes, fence: int, lease: int, deed: Op) -> Op:
    """Do something to a claim while it is this one."""
    return nested(Txn(compare=(created_at(key, fence), leased_by(key, lease)), success=(deed,)))


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Cut keys with their values into what fits into one transaction each."""
    batch: list[Item] = []
    size = 0
    for key, value in items:
        if batch and (len(batch) == STEPS_MAX or size + len(value) > BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append((key, value))
        size += len(value)
    if batch:
        yield batch
