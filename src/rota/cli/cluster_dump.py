"""`rota cluster dump`: write down all that matters, without secrets, for others to look at."""

from __future__ import annotations

import json
import os
import socket
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from rota.cli.lazy import Command
from rota.cli.output import said, say_json
from rota.cli.session import COORDINATOR_OPTION, Session, ask, settings
from rota.errors import InvalidInput


@click.command(cls=Command)
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Write it there. [default: print it]")
@COORDINATOR_OPTION
@click.pass_context
def dump(ctx: click.Context, output: Path | None) -> None:
    """Write configuration, schedulers, nodes, limits, queues and the last events as one JSON. Secrets are masked, and
    hosts and addresses have other names: the same host the same name everywhere in it."""
    found = {name: "***" if it.setting.is_secret and it.value else it.value for name, it in settings(ctx).items()}

    async def work(session: Session) -> dict[str, Any]:
        return await session.control.dump.make(found, hosts=[socket.gethostname(), socket.getfqdn()])

    whole = {"version": metadata.version("rota"), **ask(ctx, work, coordinated=True)}
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
