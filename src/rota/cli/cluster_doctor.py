"""`rota cluster doctor|dump`: look for what is wrong or weak; write down all that matters for others to look at."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rota.cli.faults import OK, UNHEALTHY
from rota.cli.format import count
from rota.cli.lazy import Command
from rota.cli.output import as_json, coloured, facts, said, say, say_json
from rota.cli.progress import patiently
from rota.cli.session import COORDINATOR_OPTION, Session, ask, settings
from rota.control import Finding, Severity
from rota.control.shapes.cluster import examined_shape
from rota.errors import InvalidInput

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
        done = await session.control.repair() if repair else ()
        return await patiently(session.clock, "examining", session.control.doctor()), done

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


@click.command(cls=Command)
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Write it there. [default: print it]")
@COORDINATOR_OPTION
@click.pass_context
def dump(ctx: click.Context, output: Path | None) -> None:
    """Write configuration, schedulers, nodes, limits, queues and the last events as one JSON. Secrets are masked, and
    hosts and addresses have other names: the same host the same name everywhere in it."""
    found = {name: "***" if it.setting.is_secret and it.value else it.value for name, it in settings(ctx).items()}

    whole = {
        "version": metadata.version("rota"),
        **ask(
            ctx,
            lambda session: session.control.dump(found, hosts=[socket.gethostname(), socket.getfqdn()]),
            coordinated=True,
        ),
    }
    if output is None:
        say_json(whole)
        return
    _write(output, json.dumps(whole, ensure_ascii=False, indent=2) + "\n")
    said(ctx, {"file": str(output)}, f"the dump is in {output}; look through it before you hand it on")


def _write(path: Path, text: str) -> None:
    """For nobody else to read: it is masked, but whose it is may still be guessed."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InvalidInput.of("--output", f"{path} cannot be written: {error.strerror}") from None
