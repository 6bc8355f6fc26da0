"""A dump may be shown to strangers: no secret, no host, no address; what was the same stays the same."""

from __future__ import annotations

import math
import time

import pytest

from rota.core.masking import Mask, host_of, hosts_in, without_passwords


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://me:s3cret@db.example:5432/rota", "postgresql://***@host-1:5432/rota"),
        (
            "postgresql://me:p@ss:w@db.example/rota?sslpassword=x&a=1",
            "postgresql://***@host-1/rota?sslpassword=***&a=1",
        ),
        ("etcd://db.example:2379,web-1:2379", "etcd://host-1:2379,host-2:2379"),
        ("root@web-1", "root@host-2"),
        ("web-1-4711", "host-2-4711"),
        ("me@mail.example.org", "***@***"),
        ("10.1.2.3:7700 and 10.1.2.3:7701 and 10.1.2.4", "address-1:7700 and address-1:7701 and address-2"),
        ("[2001:db8::1]:7700", "[address-1]:7700"),
        ("127.0.0.1:7700 ::1 localhost 0.0.0.0:1", "127.0.0.1:7700 ::1 localhost 0.0.0.0:1"),
        ("2026-11-16T07:39:55.567010+00:00 at 07:39:55", "2026-11-16T07:39:55.567010+00:00 at 07:39:55"),
        ("cobweb-1x db.examples", "cobweb-1x db.examples"),
        ("version 1.2.3 of 4", "version 1.2.3 of 4"),
        ("it is 2001:db8::1.", "it is address-1."),
    ],
)
def test_texts_lose_secrets_and_places(given: str, shown: str) -> None:
    assert Mask(["db.example", "web-1", "localhost", "10.1.2.3"]).text(given) == shown


def test_values_are_masked_however_deep_and_by_the_name_of_their_field() -> None:
    mask = Mask(["web-1"])
    given = {"smtp_password": "x", "token": "", "a": [{"api_token": "t", "n": 3}], "hosts": ("web-1", None, True)}
    assert mask.value(given) == {
        "smtp_password": "***",
        "token": "",
        "a": [{"api_token": "***", "n": 3}],
        "hosts": ["host-1", None, True],
    }


def test_a_long_name_is_not_taken_for_a_short_one() -> None:
    assert Mask(["db", "db.example"]).text("db.example db") == "host-2 host-1"


def test_the_hosts_of_urls_and_addresses() -> None:
    assert hosts_in("zookeeper://u:p@one:2181,two:2181,[::1]:2181/x") == {"one", "two", "::1"}
    assert hosts_in("sqlite:///rota.db") == set()
    assert [host_of(it) for it in ("a:1", "[::1]:2", "::1", "a")] == ["a", "::1", "::1", "a"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://me:s3cret@db/rota", "postgresql://me:***@db/rota"),
        ("postgresql://me:p@ss:w@db/rota?sslpassword=x&a=1", "postgresql://me:***@db/rota?sslpassword=***&a=1"),
        ("postgresql://me@db/rota and me@mail", "postgresql://me@db/rota and me@mail"),
        ("a://u:1@x then mail to b@c", "a://u:***@x then mail to b@c"),
    ],
)
def test_passwords_of_urls_are_hidden_and_what_stands_beside_them_stays(given: str, shown: str) -> None:
    assert without_passwords(given) == shown


HOSTILE = [
    "://",
    "://a:",
    "a@",
    "a",
    "?password",
    "?password=",
    "?",
    ":",
    "1.",
    "a.a",
    "1:",
    "@",
    "a@b.",
    "&key",
    "%3A",
]


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("end", ["", "@", "z"])
def test_masking_takes_time_in_proportion_to_the_text(piece: str, end: str) -> None:
    """A ratio of processor time: a quadratic pattern would take about 16 times as long on four times the text."""

    def cost(times: int) -> float:
        text = piece * times + end
        best = math.inf
        for _ in range(3):
            begin = time.thread_time()
            without_passwords(text)
            hosts_in(text)
            Mask(["db.example"]).text(text)
            best = min(best, time.thread_time() - begin)
        return best

    assert cost(16_000) < 10 * cost(4_000) + 0.02
