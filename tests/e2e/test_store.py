"""`rota store`: what somebody does with the store itself."""

from __future__ import annotations

import json

from tests.e2e.rig import Home


def test_somebody_who_restored_a_backup_says_so_and_the_doctor_knows(home: Home) -> None:
    home.ok("store", "migrate")
    assert "the store is of generation 2 now" in home.ok("store", "restored")
    assert json.loads(home.ok("store", "restored", "--json"))["generation"] == 3
    assert "history_lost" in home.rota("cluster", "doctor", "--json").stdout
