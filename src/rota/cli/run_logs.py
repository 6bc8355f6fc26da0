"""`rota run logs`: what attempts printed; byte for byte into a file or pipe, without its escape codes on a terminal."""

from __future__ import annotations

import sys

import click

from rota.cli.arguments import RUN_ID
from rota.cli.format import number
from rota.cli.lazy import Command
from rota.cli.output import PlainStream, as_json, say, say_json_line
from rota.cli.session import Session, ask
from rota.control.logs import LogPiece
from rota.control.shapes.runs import log_shape


@click.command(cls=Command)
@click.argument("run_id", metavar="ID", type=RUN_ID)
@click.option("-f", "--follow", is_flag=True, help="Go on until the attempt has ended.")
@click.option("--item", metavar="N", type=click.IntRange(0, 10_000), help="Only the item at this place, from 0.")
@click.option("--attempt", metavar="N", type=click.IntRange(1, 1_000_000), help="This attempt. [default: the latest]")
@click.pass_context
def logs(ctx: click.Context, run_id: int, follow: bool, item: int | None, attempt: int | None) -> None:
    """Print what a run printed, as it was printed; a terminal gets no colours and no other escape codes of it. Where
    output was lost, a line in brackets says so.

    With --json every line is an object: item, attempt, offset, and the bytes as text or, if they are none, as base64.
    """
    show = _JsonPrinter() if as_json(ctx) else _Printer()

    async def work(session: Session) -> None:
        said = False
        async for piece in session.control.logs.read(run_id, item=item, attempt=attempt, follow=follow):
            show(piece)
            said = True
        show.close()
        if not said and not as_json(ctx):
            say("[nothing was printed]", file=sys.stderr)

    ask(ctx, work)


class _Printer:
    """Writes bytes as they are, to a terminal as plain text; where there are several items, each under a heading."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._terminal = PlainStream() if sys.stdout.isatty() else None

    def close(self) -> None:
        """Write what was kept back because it might have gone on."""
        if self._terminal is not None:
            sys.stdout.write(self._terminal.close())
            sys.stdout.flush()

    def __call__(self, piece: LogPiece) -> None:
        if self._last != piece.item.id:
            self.close()
        if piece.of > 1 and self._last != piece.item.id:
            item = f"item {piece.item.id} {number(piece.item)}".rstrip()
            say(f"[{item}, attempt {piece.attempt or '-'}]", flush=True)
        self._last = piece.item.id
        if piece.data:
            self._write(piece.data)
        if piece.note or piece.why:
            self.close()
        if piece.note and piece.attempt:
            say(f"\n{piece.note}", flush=True)
        elif piece.note:
            self._say(piece.note)
        if piece.why:
            self._say(piece.why)

    def _write(self, data: bytes) -> None:
        if self._terminal is not None:
            sys.stdout.write(self._terminal.feed(data))
        else:
            sys.stdout.buffer.write(data)
        sys.stdout.flush()

    def _say(self, text: str) -> None:
        sys.stdout.flush()
        say(text, file=sys.stderr, flush=True)


class _JsonPrinter:
    """Writes one object for each piece."""

    def close(self) -> None:
        """Nothing is kept back."""

    def __call__(self, piece: LogPiece) -> None:
        say_json_line(log_shape(piece))
