"""Values are named by their content."""

from __future__ import annotations

from rota.model.job import Misfire, MisfirePolicy
from rota.model.value import digest
from tests.factories import a_definition


def test_equal_values_have_equal_digests_however_they_were_made() -> None:
    spelled_out = Misfire(policy=MisfirePolicy("once"), grace_s=float("60"), count_max=int("100"))
    assert digest(spelled_out) == digest(Misfire())
    one = a_definition("same", tenant=str(b"default", "ascii"), misfire=spelled_out)
    assert digest(one) == digest(a_definition("same"))


def test_a_changed_field_changes_the_digest() -> None:
    assert digest(a_definition("same")) != digest(a_definition("same", title="other"))
