"""What is wrong in a coordinator, and what is only newer than this release."""

from __future__ import annotations

import json

import pytest

from rota.core.placement.layout import wrong
from rota.model.cluster import Peer
from rota.model.entry import Entry
from rota.model.value import encode

PEER = encode(Peer(name="a", incarnation="1"))
NEWER = json.dumps({**json.loads(PEER), "placement": {"kind": "a word of the next release"}, "more": 1})


def entry(key: str, value: str, session: str | None) -> Entry:
    return Entry(key=key, value=value, session=session, version=1, fence=1)


@pytest.mark.parametrize("value", [PEER, NEWER])
@pytest.mark.parametrize(("key", "session"), [("live/a", "s"), ("all/a", None)])
def test_what_a_scheduler_tells_in_words_of_a_newer_release_is_left_alone(
    key: str, session: str | None, value: str
) -> None:
    assert wrong([entry(key, value, session)]) == ()


@pytest.mark.parametrize("value", ["", "{", "[]", "7", "{}", '{"name": "b"}', '{"name": 7}', "\x00"])
@pytest.mark.parametrize(("key", "session"), [("live/a", "s"), ("all/a", None)])
def test_what_does_not_tell_of_the_scheduler_of_its_name_is_wrong(key: str, session: str | None, value: str) -> None:
    (found,) = wrong([entry(key, value, session)])
    assert found.why == "it is not to be understood"
