"""`rota cluster doctor`: look for what is wrong or weak, and repair what is safe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rota.cli.faults import OK, UNHEALTHY
from rota.cli.format import count
from rota.cli.lazy import Command
from rota.cli.output import as_json, coloured, facts, say, say_json
from rota.cli.progress import patiently
from rota.cli.session import COORDINATOR_OPTION, Session, ask
from rota.control import Finding, Severity
from rota.control.shapes.cluster import examined_shape

if TYPE_CHECKING:
    from rich.text import Text

Examined = tuple[tuple[Finding, ...], tuple[str, ...]]


@click.command(cls=Command)
@click.option("--repair", is_flag=True, help="Repair what is safe to repair, and look again.")
@COORDINATOR_OPTION
@click.pass_context
def doctor(ctx: click.Context, repair: bool) -> int:
    """Look for what is wrong (error), what would not survive a fault (warning), and what is good to know (note). What
    may pass by itself is looked at twice, a session apart. Ends with 7 if there is an error."""

    async def work(session: Session) -> Examined:
        done = await session.control.doctor.repair() if repair else ()
        return await patiently(session.clock, "examining", session.control.doctor.findings()), done

    found, done = ask(ctx, work, coordinated=True)
    bad = any(it.severity is Severity.ERROR for it in found)
    if as_json(ctx):
        say_json(examined_shape(found, done, healthy=not bad))
    else:
        _show(found, done)
    return UNHEALTHY if bad else OK


def _show(found: Sequence[Finding], done: Sequence[str]) -> None:
    for line in done:
        say(f"repair: {line}")
    if found:
        facts([line for it in found for line in _lines(it)])
    counts = [sum(it.severity is severity for it in found) for severity in Severity]
    words = ", ".join(count(number, str(severity)) for number, severity in zip(counts, Severity, strict=True))
    say(("\n" if found else "") + words)


def _lines(it: Finding) -> list[tuple[str | Text, str]]:
    """What it is, and indented why it matters and what to do."""
    what = f"{it.about}: {it.what}" if it.about else it.what
    return [(coloured(it.severity), what), ("", f"  why: {it.why}"), *([("", f"  do:  {it.todo}")] if it.todo else [])]
