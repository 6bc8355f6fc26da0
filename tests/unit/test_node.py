"""What a lease says of its node."""

import pytest

from tests.factories import a_new_node

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("ahead_s", "is_void"),
    [(-5.0, False), (10.0, False), (10.4, False), (11.1, True), (3600.0, True)],
    ids=["over", "just renewed", "renewed after the look at the clock", "clock set back", "by an hour"],
)
def test_a_lease_further_ahead_than_a_renewal_could_set_it_is_void(*, ahead_s: float, is_void: bool) -> None:
    now = 1_000 * SECOND
    assert a_new_node("a", lease_s=10.0).is_void(now + round(ahead_s * SECOND), now) is is_void


def test_a_node_of_a_release_that_did_not_say_how_long_its_lease_lasts_is_believed() -> None:
    assert not a_new_node("a").is_void(10**15, 0)
