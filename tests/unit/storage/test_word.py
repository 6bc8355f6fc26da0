"""The word that wakes a node: who has the key may send it, once; strangers cost nothing that is not bounded."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from rota.clock import SystemClock
from rota.model.records import to_us
from rota.storage.sql import word
from rota.storage.sql.word import (
    FRESH_US,
    LENGTH,
    PER_S,
    REMEMBERED_MAX,
    Addresses,
    Judge,
    WordListener,
    WordSender,
    bound,
    signed,
)

KEY, OTHER = b"k" * 16, b"o" * 16
NOW_US = 1_800_000_000_000_000
PATIENT_S = 10.0


def test_a_word_of_the_cluster_is_good_once() -> None:
    judge, word = Judge(KEY), signed(KEY, NOW_US)
    assert judge.is_good(word, NOW_US)
    assert not judge.is_good(word, NOW_US), "repeated"


@pytest.mark.parametrize("late_us", [-FRESH_US - 1, FRESH_US + 1])
def test_an_old_word_is_no_good_nor_one_of_the_future(late_us: int) -> None:
    assert not Judge(KEY).is_good(signed(KEY, NOW_US), NOW_US + late_us)


def test_a_word_is_good_while_clocks_differ_a_little() -> None:
    assert Judge(KEY).is_good(signed(KEY, NOW_US), NOW_US + FRESH_US)
    assert Judge(KEY).is_good(signed(KEY, NOW_US), NOW_US - FRESH_US)


def test_a_forged_word_is_no_good() -> None:
    judge, word = Judge(KEY), signed(KEY, NOW_US)
    assert not judge.is_good(signed(OTHER, NOW_US), NOW_US)
    for place in range(LENGTH):
        forged = bytearray(word)
        forged[place] ^= 1
        assert not judge.is_good(bytes(forged), NOW_US), f"byte {place}"
    assert judge.is_good(word, NOW_US), "strangers cannot use it up"


@pytest.mark.parametrize("size", [0, 1, LENGTH - 1, LENGTH + 1, 1400])
def test_what_has_another_length_is_no_good(size: int) -> None:
    assert not Judge(KEY).is_good((signed(KEY, NOW_US) * 60)[:size], NOW_US)


def test_what_is_remembered_of_words_is_bounded() -> None:
    judge = Judge(KEY)
    assert all(judge.is_good(signed(KEY, NOW_US + n), NOW_US) for n in range(REMEMBERED_MAX + 10))
    assert len(judge._heard) == REMEMBERED_MAX


class Node:
    """One that listens, and counts how often it is woken."""

    def __init__(self) -> None:
        self.socket = bound("127.0.0.1", 0)
        self.place = self.socket.getsockname()
        self.woken = 0
        self._news = asyncio.Event()
        self.listener = WordListener(self.socket, KEY, SystemClock(), self._wake)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.place[1]}"

    def _wake(self) -> None:
        self.woken += 1
        self._news.set()

    async def is_woken(self) -> None:
        async with asyncio.timeout(PATIENT_S):
            await self._news.wait()
        self._news.clear()


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    made = Node()
    yield made
    made.listener.close()


def say(node: Node, *words: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
        for word in words:
            mouth.sendto(word, node.place)


def now_us() -> int:
    return to_us(SystemClock().wall())


async def test_a_good_word_wakes(node: Node) -> None:
    say(node, signed(KEY, now_us()))
    await node.is_woken()


async def test_many_good_words_wake_few_times(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word, "WAKE_GAP_S", 0.5)
    begin = now_us()
    say(node, *(signed(KEY, begin + n) for n in range(100)))
    await node.is_woken()
    await node.is_woken()  # what came meanwhile is told once more
    assert node.woken == 2


async def test_a_flood_of_forged_words_wakes_nobody_and_is_read_only_in_part(node: Node) -> None:
    begin = now_us()
    for _ in range(4):
        say(node, *(signed(OTHER, begin + n) for n in range(PER_S)))
        await asyncio.sleep(0.01)
    assert node.woken == 0
    assert node.listener._left >= 0
    say(node, *(b"x" * 1400 for _ in range(100)))
    await asyncio.sleep(0.01)
    assert node.woken == 0
    async with asyncio.timeout(PATIENT_S):  # in the next second it hears again
        while not node.woken:
            say(node, signed(KEY, now_us()))
            await asyncio.sleep(0.05)


async def test_after_so_many_words_a_node_reads_none_until_the_next_second(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word, "PER_S", 10)
    say(node, *(signed(OTHER, now_us()) for _ in range(30)))
    async with asyncio.timeout(PATIENT_S):
        while node.listener._left:
            await asyncio.sleep(0)
    say(node, signed(KEY, now_us()))
    await asyncio.sleep(0.05)
    assert node.woken == 0


class Registry:
    """What a sender reads of the store."""

    def __init__(self, *nodes: Node, key: bytes | None = KEY) -> None:
        self.found = Addresses(key, {number: node.address for number, node in enumerate(nodes, 1)})
        self.reads = 0

    async def __call__(self) -> Addresses:
        self.reads += 1
        return self.found


async def test_a_commit_wakes_whom_it_concerns(node: Node) -> None:
    other = Node()
    sender = WordSender(Registry(node, other), SystemClock())
    sender.tell(["node:1"])
    await node.is_woken()
    assert other.woken == 0
    sender.tell(["dispatch"])
    await node.is_woken()
    await other.is_woken()
    await sender.close(1)
    other.listener.close()


async def test_seats_and_entries_are_told_to_nobody(node: Node) -> None:
    registry = Registry(node)
    sender = WordSender(registry, SystemClock())
    sender.tell(["seats", "entry:live/a"])
    await sender.close(1)
    assert registry.reads == 0


async def test_many_commits_make_few_words_and_the_last_is_told(node: Node) -> None:
    registry = Registry(node)
    sender = WordSender(registry, SystemClock())
    for _ in range(100):
        sender.tell(["dispatch"])
        await asyncio.sleep(0)
    await sender.close(PATIENT_S)
    assert registry.reads == 1
    await node.is_woken()
    assert len(node.listener._judge._heard) <= 3


async def test_a_node_needs_no_word_of_its_own(node: Node) -> None:
    sender = WordSender(Registry(node), SystemClock())
    sender.own = node.address
    sender.tell(["dispatch"])
    await sender.close(PATIENT_S)
    await asyncio.sleep(0.05)
    assert node.woken == 0


async def test_a_sender_never_fails_and_never_waits() -> None:
    async def away() -> Addresses:
        raise OSError("the store is away")

    sender = WordSender(away, SystemClock())
    sender.tell(["dispatch"])
    await sender.close(PATIENT_S)

    async def hangs() -> Addresses:
        await asyncio.sleep(3600)
        raise AssertionError

    sender = WordSender(hangs, SystemClock())
    sender.tell(["dispatch"])
    await sender.close(0.01)


@pytest.mark.parametrize("address", ["nobody.invalid:7700", "127.0.0.1:99999", "127.0.0.1:x", "", "[::1]", ":7700"])
async def test_an_address_that_is_none_costs_the_others_nothing(node: Node, address: str) -> None:
    registry = Registry(node)
    registry.found = Addresses(KEY, {7: address, 8: node.address})
    sender = WordSender(registry, SystemClock())
    sender.tell(["dispatch"])
    await node.is_woken()
    await sender.close(1)


async def test_without_a_key_nothing_is_sent(node: Node) -> None:
    sender = WordSender(Registry(node, key=None), SystemClock())
    sender.tell(["dispatch"])
    await sender.close(PATIENT_S)
    await asyncio.sleep(0.05)
    assert node.woken == 0


async def test_a_commit_wakes_a_bounded_number_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word, "TOLD_MAX", 2)
    nodes = [Node() for _ in range(4)]
    sender = WordSender(Registry(*nodes), SystemClock())
    sender.tell(["dispatch"])
    await sender.close(PATIENT_S)
    await asyncio.sleep(0.05)
    assert sum(node.woken for node in nodes) == 2
    for node in nodes:
        node.listener.close()
