"""What a word is: "look", the instant at which it was sent, and a proof of the cluster's key. It carries no data.

    1 byte   the version
    8 bytes  microseconds since 1970, by the clock of the sender
    16 bytes HMAC-SHA256 of the nine before, cut

A word that is old, or was heard before, does not count: whoever repeats one gains nothing.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict

VERSION = b"\x01"
PROOF = 16
LENGTH = 1 + 8 + PROOF
FRESH_US = 30_000_000
"""How far the clocks of two hosts may be apart, and for how long a word is good."""
REMEMBERED_MAX = 4096
"""How many words that were heard are remembered, so that none counts twice."""


def signed(key: bytes, at_us: int) -> bytes:
    """The word of an instant."""
    said = VERSION + at_us.to_bytes(8, "big")
    return said + _proof(key, said)


class Judge:
    """Says which words are to be heeded."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._heard: OrderedDict[bytes, None] = OrderedDict()

    def is_good(self, word: bytes, now_us: int) -> bool:
        """Whether somebody who has the key sent this just now, for the first time."""
        if len(word) != LENGTH or word[:1] != VERSION:
            return False
        if abs(int.from_bytes(word[1:9], "big") - now_us) > FRESH_US:
            return False
        if not hmac.compare_digest(word[9:], _proof(self._key, word[:9])) or word in self._heard:
            return False
        self._heard[word] = None
        if len(self._heard) > REMEMBERED_MAX:
            self._heard.popitem(last=False)
        return True


def _proof(key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, said, "sha256")[:PROOF]
