"""The jobs of the firing tests, each as the product gets it and as the judges see it."""

from __future__ import annotations

import random
from dataclasses import dataclass

from rota.model import trigger
from rota.model.job import Definition, Misfire, MisfirePolicy, Overlap, Task
from rota.model.work import Retry
from tests.checkers import misfire
from tests.checkers.slots import SECOND, Cron, Every, Rule
from tests.factories import FORBID, a_definition, allow

LIVE_MAX = 10_000  # runs that nobody executes never end, and shall not keep the next from starting

MARK = Task(name="main", runner="python", config={"handler": "mark"}, retry=Retry(lost_max=100), timeout_s=60.0)
"""Leaves a line. One at a time in a process: then all jobs share the processes. Nodes die so often here that an item
may be lost many times in a row."""

MENU: tuple[Rule, ...] = (
    *(Every(round(period * SECOND)) for period in (1, 1, 1.5, 2, 2.5, 3, 5)),
    *(Cron(f"*/{period} * * * * *") for period in (1, 2, 3, 4, 5, 7)),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a job is, besides when."""

    overlap: Overlap
    misfire: Misfire
    backlog_max: int

    @property
    def judged(self) -> misfire.Misfire:
        return misfire.Misfire(str(self.misfire.policy), self.misfire.grace_s)


_DEFAULT = Shape(allow(LIVE_MAX), Misfire(), 100)
SHAPES = (
    *[_DEFAULT] * 5,
    Shape(FORBID, Misfire(), 100),
    Shape(FORBID, Misfire(policy=MisfirePolicy.SKIP, grace_s=1), 1),
    Shape(allow(LIVE_MAX), Misfire(policy=MisfirePolicy.SKIP, grace_s=1), 1),
    Shape(allow(LIVE_MAX), Misfire(policy=MisfirePolicy.ONCE, grace_s=1), 2),
    Shape(allow(LIVE_MAX), Misfire(policy=MisfirePolicy.ALL, grace_s=1), 100),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One version of a job."""

    name: str
    rule: Rule
    shape: Shape
    title: str = ""

    @property
    def definition(self) -> Definition:
        return a_definition(
            self.name,
            title=self.title,
            rule=_product_rule(self.rule),
            overlap=self.shape.overlap,
            misfire=self.shape.misfire,
            backlog_max=self.shape.backlog_max,
            tasks=(MARK,),
        )

    def changed(self, rng: random.Random) -> Wanted:
        """The same job, due at other instants; its title makes it a new version even if the rule is an old one."""
        return Wanted(self.name, rng.choice(MENU), self.shape, title=f"change {rng.getrandbits(64):x}")


def steady(count: int) -> list[Wanted]:
    """Jobs with periods from 1 to 7 s, in all shapes."""
    return [Wanted(f"steady-{n}", MENU[n % len(MENU)], SHAPES[n % len(SHAPES)]) for n in range(count)]


def herd(count: int, seconds: tuple[int, ...]) -> list[Wanted]:
    """Jobs that are all due in the same seconds of every minute."""
    rule = Cron(f"{','.join(map(str, sorted(set(seconds))))} * * * * *")
    return [Wanted(f"herd-{n}", rule, SHAPES[n % len(SHAPES)]) for n in range(count)]


def _product_rule(rule: Rule) -> trigger.Rule:
    if isinstance(rule, Every):
        return trigger.Every(every_s=rule.period_us / SECOND)
    return trigger.Cron(expression=rule.expression)
