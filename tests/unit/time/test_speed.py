"""Re-arming is never what a scheduler waits for (performance.md, section C)."""

from __future__ import annotations

import time

from rota.core.instants import after_end, parse_endless, upcoming
from rota.model.trigger import Endless, Schedule
from tests.unit.time.factories import NEW_YORK, cron, utc


def test_ten_thousand_jobs_are_re_armed_in_half_a_second_of_one_core() -> None:
    jobs = [cron(f"{n % 60} {n // 60 % 24} * * {'*' if n % 3 else '1-5'}", NEW_YORK) for n in range(10_000)]
    took_s = min(_took_s(jobs, f"2026-01-0{day}") for day in (1, 2, 3))
    print(f"{took_s / len(jobs) * 1e6:.1f} µs for each of {len(jobs)}")
    assert took_s < 0.5


def test_an_endless_trigger_with_long_pauses_is_no_slower() -> None:
    text = "604800; 2@* 9-18 * * 1-5; 8@* 19-23 L; 9@0 0 29 2"
    schedule = Schedule(rule=Endless(paces=parse_endless(text), zone=NEW_YORK))
    began = time.process_time()
    for _ in range(1000):
        assert after_end(schedule, utc("2026-01-10"), seed="") is not None
    print(f"{(time.process_time() - began) * 1e3:.1f} µs each")
    assert time.process_time() - began < 0.5


def _took_s(jobs: list[Schedule], after: str) -> float:
    began = time.process_time()
    for number, schedule in enumerate(jobs):
        next(upcoming(schedule, utc(after), seed=str(number)))
    return time.process_time() - began
