"""`rota run`: list, show and explain runs; cancel and retry them; print what they printed, byte for byte into a file or
pipe, without its escape codes on a terminal."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from rota.cli.arguments import LIMIT, RUN_ID
from rota.cli.format import arguments, count, cut, duration, key, number, reason, size, whose
from rota.cli.lazy import Command
from rota.cli.output import PlainStream, answer, as_json, coloured, facts, listed, said, say, say_json_line, table
from rota.cli.session import Session, ask
from rota.control import Reason, job_name
from rota.control.logs import LogPiece
from rota.control.runs import (
    Cancellation,
    Explained,
    RunDetail,
    cancelled_shape,
    explained_shape,
    log_shape,
    run_detail_shape,
    run_shape,
)
from rota.control.values import cause, lateness, short
from rota.model.job import JobName
from rota.model.plan import RunFilter
from rota.model.run import Item, Run
from rota.model.states import RunState
from rota.model.work import AttemptRecord

if TYPE_CHECKING:
    from rich.text import Text

SHOWN_MAX = 20
"""How many items and attempts are shown to people."""

_DULL = {"waiting": 1, "ready": 1, "succeeded": 2, "skipped": 2, "cancelled": 2}
"""What is shown last, where not all can be shown."""


@click.command(name="list", cls=Command)
@click.option("--job", metavar="NAME", help="Only runs of this job.")
@click.option("--state", type=click.Choice([str(it) for it in RunState]), help="Only runs in this state.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="At most so many.")
@click.option("--before", metavar="ID", type=RUN_ID, help="Only runs older than this one.")
@click.pass_context
def list_(ctx: click.Context, job: str | None, state: str | None, limit: int, before: int | None) -> None:
    """List runs, newest first; --before with the last id pages on."""
    wanted = RunFilter(
        job=None if job is None else job_name(job),
        states=() if state is None else (RunState(state),),
        before_id=before,
        limit=limit + 1,
    )

    async def work(session: Session) -> tuple[tuple[Run, ...], dict[int, JobName]]:
        runs = await session.control.runs.find(wanted)
        return runs, await session.control.runs.names(runs)

    runs, names = ask(ctx, work)
    shapes = [run_shape(it, names.get(it.job_id)) for it in runs[:limit]]
    rows = (_run_row(it, whose(it, names.get(it.job_id))) for it in runs[:limit])
    listed(ctx, shapes, ["RUN", "JOB", "STATE", "REASON", "CAUSE", "DUE", "LATE"], rows, "no runs")
    if len(runs) > limit and not as_json(ctx):
        say(f"there are more; go on with: --before {runs[limit - 1].id}")


def _run_row(it: Run, name: str) -> tuple[str | Text, ...]:
    late = duration(max(lateness(it), 0))
    return str(it.id), name, coloured(it.state), reason(it), cause(it), short(it.due_at), late


@click.command(cls=Command)
@click.argument("run_id", metavar="ID", type=RUN_ID)
@click.pass_context
def show(ctx: click.Context, run_id: int) -> None:
    """Show a run: its items and where they are, the attempts that are over, and its history."""
    detail = ask(ctx, lambda session: session.control.runs.detail(run_id))
    answer(ctx, run_detail_shape(detail), _show_run, detail)


def _show_run(detail: RunDetail) -> None:
    it = detail.run
    optional = [
        ("key", key(it)),
        ("reason", reason(it)),
        ("slot", short(it.slot_at) if it.slot_at else ""),
        ("last slot", short(it.last_slot_at) if it.slots > 1 else ""),
        ("ended", short(it.ended_at) if it.ended_at else ""),
        ("cancel", f"asked at {short(it.cancel_at)}" if it.cancel_at else ""),
        ("params", ", ".join(f"{name}={value!r}" for name, value in it.params.items())),
        ("quota", f"{it.work.tenant}/{it.work.quota}" if it.work else ""),
        ("handler", (it.work.handler or "on_start; finished from outside") if it.work and not it.work.call else ""),
    ]
    version = f" (version {it.version})" if detail.job else ""
    facts(
        [
            ("run", str(it.id)),
            ("job", f"{whose(it, detail.job)}{version}"),
            ("state", coloured(it.state)),
            ("cause", cause(it)),
            ("due", short(it.due_at)),
            ("recorded", f"{short(it.created_at)} ({duration(max(lateness(it), 0))} late)"),
            *((name, value) for name, value in optional if value),
        ]
    )
    if detail.items:
        _show_items(detail)
    if detail.attempts:
        _show_attempts(detail)
    say("\nhistory")
    table(["AT", "WHAT", "BY", "DETAILS"], [(short(e.at), e.kind, e.actor, _details(e.data)) for e in detail.history])


def _show_items(detail: RunDetail) -> None:
    head = _head(detail)
    say("\nitems" + (f": {_tally(detail)}" if len(detail.items) > 1 else ""))
    heads = ["ITEM", head, "STATE", "NODE", "START BY", "RESULT"]
    ordered = sorted(detail.items, key=lambda item: _DULL.get(detail.state_of(item), 0))
    rows = [_item_row(detail, item, head) for item in ordered[:SHOWN_MAX]]
    table(heads, rows)
    _say_more(len(detail.items), "item")


def _tally(detail: RunDetail) -> str:
    states = Counter(detail.state_of(item) for item in detail.items)
    return ", ".join(f"{number} {state}" for state, number in states.most_common())


def _head(detail: RunDetail) -> str:
    """What tells the items of a run apart: how a task was called, whatever number a client gave it, or the task."""
    if detail.run.work is not None and detail.run.work.call:
        return "ARGUMENTS"
    return "NUMBER" if any(map(number, detail.items)) else "TASK"


def _item_row(detail: RunDetail, item: Item, head: str) -> tuple[str | Text, ...]:
    named = {"ARGUMENTS": lambda: cut(arguments(item.info)), "NUMBER": lambda: number(item) or "-"}
    return (
        str(item.id),
        named.get(head, lambda: _place(item))(),
        coloured(detail.state_of(item)),
        detail.node_of(item) or "-",
        short(item.start_by_at),
        cut(item.message or item.result or "") or "-",
    )


def _place(it: Item | Reason) -> str:
    return f"{it.task}[{it.index}]" if it.index else it.task


def _show_attempts(detail: RunDetail) -> None:
    say("\nattempts")
    rows = [_attempt_row(it) for it in detail.attempts[-SHOWN_MAX:]]
    table(["ITEM", "ATTEMPT", "OUTCOME", "NODE", "STARTED", "TOOK", "CODE", "LOG", "MESSAGE"], rows)
    _say_more(len(detail.attempts), "attempt")
    _show_whole(detail.attempts)


def _show_whole(attempts: Sequence[AttemptRecord]) -> None:
    """What the last attempt said, if there was no room for it in its line."""
    last = attempts[-1]
    if last.message and cut(last.message) != last.message.strip():
        say(f"\nwhat attempt {last.attempt} at item {last.item_id} ended with\n{last.message.rstrip()}")


def _attempt_row(it: AttemptRecord) -> tuple[str | Text, ...]:
    took = "-" if it.started_at is None else duration(max((it.ended_at - it.started_at).total_seconds(), 0))
    code = "-" if it.code is None else str(it.code)
    log = size(it.log_bytes) if it.log_bytes else "-"
    begun = str(it.item_id), str(it.attempt), coloured(it.outcome), it.node or "-", short(it.started_at)
    return *begun, took, code, log, cut(it.message) or "-"


def _say_more(number: int, noun: str) -> None:
    if number > SHOWN_MAX:
        say(f"… {count(number - SHOWN_MAX, f'more {noun}')}; --json shows all")


def _details(data: Mapping[str, object]) -> str:
    """What an event says; why there is a run, and its key, is told above."""
    return ", ".join(f"{name}={value}" for name, value in data.items() if name not in ("cause", "key"))


@click.command(cls=Command)
@click.argument("run_id", metavar="ID", type=RUN_ID)
@click.pass_context
def explain(ctx: click.Context, run_id: int) -> None:
    """Say, for every item of a run that has not ended, what it waits for or where it runs.

    Of a run that has failed: why."""
    told = ask(ctx, lambda session: session.control.runs.explain(run_id))
    answer(ctx, explained_shape(told), _show_reasons, told)


def _show_reasons(told: Explained) -> None:
    facts([("run", str(told.run.id)), ("state", coloured(told.run.state))])
    say()
    if not told.reasons:
        say("none of its items is live; the run ends in a moment")
        return
    for it in told.reasons:
        if it.item_id is None:
            say(it.text)
    items = [it for it in told.reasons if it.item_id is not None]
    if not items:
        return
    numbered = any(number(it) for it in items)
    heads = ["ITEM", "NUMBER" if numbered else "TASK", "WHY"]
    shown = items[:SHOWN_MAX]
    table(heads, [(str(it.item_id), (number(it) or "-") if numbered else _place(it), it.text) for it in shown])
    _say_more(len(items), "item")


@click.command(cls=Command)
@click.argument("run_ids", metavar="ID...", type=RUN_ID, nargs=-1, required=True)
@click.pass_context
def cancel(ctx: click.Context, run_ids: tuple[int, ...]) -> None:
    """Stop runs: what has not started is cancelled at once, what runs is asked to stop, and killed if it does not."""
    wanted = list(dict.fromkeys(run_ids))

    async def work(session: Session) -> tuple[Cancellation, dict[int, JobName]]:
        done = await session.control.runs.cancel(wanted)
        return done, await session.control.runs.names(done.runs)

    cancelled, names = ask(ctx, work)
    lines = [f"run {it.id} ({whose(it, names.get(it.job_id))}) is {_standing(it)}" for it in cancelled.runs]
    lines.append(f"{count(cancelled.done.ended, 'item')} cancelled, {cancelled.done.asked} asked to stop")
    said(ctx, cancelled_shape(cancelled, names), "\n".join(lines))


def _standing(run: Run) -> str:
    return f"{run.state}, and asked to stop" if run.state.live and run.cancel_at is not None else str(run.state)


@click.command(cls=Command)
@click.argument("run_id", metavar="ID", type=RUN_ID)
@click.option("--same-version", is_flag=True, help="Run the version of the job that ran then, not the newest.")
@click.pass_context
def retry(ctx: click.Context, run_id: int, same_version: bool) -> None:
    """Run an ended run again, with its parameters and its slot, under the overlap policy of its job."""

    async def work(session: Session) -> tuple[Run, dict[int, JobName]]:
        run = await session.control.runs.retry(run_id, same_version=same_version)
        return run, await session.control.runs.names([run])

    run, names = ask(ctx, work)
    name, why = names[run.job_id], f": {run.reason}" if run.reason else ""
    text = f"run {run.id} of {name} (version {run.version}) is {run.state}{why}; it repeats run {run_id}"
    said(ctx, run_shape(run, name), text)


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
