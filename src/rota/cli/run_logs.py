"""`rota run logs`: what attempts printed, byte for byte."""

from __future__ import annotations

import base64
import json
import sys

import click

from rota.cli.given import RUN_ID
from rota.cli.lazy import Command
from rota.cli.output import as_json
from rota.cli.session import Session, ask
from rota.control import LogPiece


@click.command(cls=Command)
@click.argument("run_id", metavar="ID", type=RUN_ID)
@click.option("-f", "--follow", is_flag=True, help="Go on until the attempt has ended.")
@click.option("--item", metavar="N", type=click.IntRange(0, 10_000), help="Only the item at this place, from 0.")
@click.option("--attempt", metavar="N", type=click.IntRange(1, 1_000_000), help="This attempt. [default: the latest]")
@click.pass_context
def logs(ctx: click.Context, run_id: int, follow: bool, item: int | None, attempt: int | None) -> None:
    """Print what a run printed, as it was printed. Where output was lost, a line in brackets says so.

    With --json every line is an object: item, attempt, offset, and the bytes as text or, if they are none, as base64.
    """
    show = _show_json if as_json(ctx) else _Printer()

    async def work(session: Session) -> None:
        async for piece in session.control.logs(run_id, item=item, attempt=attempt, follow=follow):
            show(piece)

    ask(ctx, work)


class _Printer:
    """Writes bytes as they are; where there are several items, each under a heading."""

    def __init__(self) -> None:
        self._last: int | None = None

    def __call__(self, piece: LogPiece) -> None:
        if piece.of > 1 and self._last != piece.item.id:
            print(f"[item {piece.item.id}{_named(piece)}, attempt {piece.attempt or '-'}]", flush=True)
        self._last = piece.item.id
        if piece.data:
            sys.stdout.buffer.write(piece.data)
            sys.stdout.flush()
        if piece.note and piece.attempt:
            print(f"\n{piece.note}", flush=True)
        elif piece.note:
            self._say(piece.note)

    def _say(self, text: str) -> None:
        sys.stdout.flush()
        print(text, file=sys.stderr, flush=True)


def _named(piece: LogPiece) -> str:
    return f" {piece.item.number}" if piece.item.number else ""


def _show_json(piece: LogPiece) -> None:
    shape: dict[str, object] = {"item_id": piece.item.id, "attempt": piece.attempt, "offset": piece.offset}
    try:
        shape["text"] = piece.data.decode()
    except UnicodeDecodeError:
        shape["base64"] = base64.b64encode(piece.data).decode()
    print(json.dumps({**shape, "note": piece.note or None}, ensure_ascii=False), flush=True)
