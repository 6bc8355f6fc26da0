"""The busy score: V1.1 to V1.5."""

import pytest

from rota.core.placement.beat import busy


@pytest.mark.parametrize(
    ("cpu", "taken", "memory", "score"),
    [(0, 0, 0, 0.00), (1, 16, 1, 100.00), (0.5, 8, 0.5, 50.00), (0.25, 4, 0.5, 26.00), (0, 16, 0, 32.00)],
)
def test_the_busy_score_weighs_cpu_seats_and_memory(cpu: float, taken: int, memory: float, score: float) -> None:
    assert busy(cpu, taken, 16, memory) == score


def test_a_node_without_seats_has_a_score() -> None:
    assert busy(0.5, 0, 0, 0) == 32.00
