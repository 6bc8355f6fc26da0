"""How busy this machine is: one measurement, whoever asks, and however often."""

from __future__ import annotations

import pytest

from rota.execution.machine_load import MachineLoad


class Processor:
    """One that is busy for a given share of its time; 100 ticks a second."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._busy = self._total = 0.0

    def run(self, seconds: float, share: float) -> None:
        self.now_s += seconds
        self._total += 100 * seconds
        self._busy += 100 * seconds * share

    def ticks(self) -> tuple[int, int]:
        return round(self._busy), round(self._total)


@pytest.fixture
def processor() -> Processor:
    return Processor()


@pytest.fixture
def machine(processor: Processor) -> MachineLoad:
    return MachineLoad(lambda: processor.now_s, processor.ticks)


def test_two_who_ask_one_after_the_other_see_the_same(processor: Processor, machine: MachineLoad) -> None:
    for _ in range(10):
        processor.run(1.0, 0.8)
        assert machine.cpu() == pytest.approx(0.8, abs=0.02)
        processor.run(0.001, 0.0)
        assert machine.cpu() == pytest.approx(0.8, abs=0.02), "a millisecond says nothing"


def test_many_who_ask_all_the_time_see_the_last_second(processor: Processor, machine: MachineLoad) -> None:
    for _ in range(500):
        processor.run(0.01, 1.0)
        machine.cpu()
    for _ in range(60):
        processor.run(0.01, 0.0)
        machine.cpu()
    assert 0.3 <= machine.cpu() <= 0.6, "four tenths of the last second were busy"
    for _ in range(100):
        processor.run(0.01, 0.0)
        machine.cpu()
    assert machine.cpu() == pytest.approx(0.0, abs=0.01)


def test_after_a_long_silence_the_whole_of_it_counts(processor: Processor, machine: MachineLoad) -> None:
    processor.run(60.0, 0.25)
    assert machine.cpu() == pytest.approx(0.25)
    processor.run(0.0, 0.0)
    assert machine.cpu() == pytest.approx(0.25)


def test_before_there_is_anything_to_compare_it_seems_idle(processor: Processor, machine: MachineLoad) -> None:
    assert machine.cpu() == 0.0
    processor.run(0.1, 1.0)
    assert machine.cpu() == 0.0
    processor.run(0.1, 1.0)
    assert machine.cpu() == 1.0
