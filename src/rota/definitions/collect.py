"""Ask a process of its own for the jobs in a Python file: the code in the file never runs in the process that asks.

The other side is `rota.client.collect`. Its answer comes through an unnamed file, so that what the code prints cannot
be taken for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import IO

import msgspec

from rota.core.time import instants
from rota.definitions import execution, fields
from rota.definitions.alarm import job_alarms, written
from rota.definitions.characters import is_whole
from rota.definitions.loaded import Loaded
from rota.definitions.report import Report, one_line
from rota.errors import InvalidInput, Problem
from rota.model.job import Definition, JobName, handler_name
from rota.model.listener import is_advertised
from rota.model.value import decode

TIMEOUT_S = 30.0
OUTPUT_MAX = 10 * 1024 * 1024
ANSWER_MAX = 10 * 1024 * 1024
GONE_S = 5.0
TAIL_BYTES = 4096
FILES_MAX = 500
TAIL_LINES = 3


async def collect(path: Path, *, today: date, timeout_s: float = TIMEOUT_S) -> Loaded:
    with tempfile.TemporaryFile() as answer:
        ending = await _run(path, answer, today, timeout_s)
        return _result(path, ending, answer)


class _Output:
    """What a process prints: only the end of it is kept."""

    def __init__(self) -> None:
        self.size = 0
        self.tail = b""

    def take(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self.tail = (self.tail + chunk)[-TAIL_BYTES:]

    def __str__(self) -> str:
        lines = self.tail.decode(errors="replace").splitlines()
        return " | ".join(one_line(line) for line in lines[-TAIL_LINES:] if line.strip())


async def _run(path: Path, answer: IO[bytes], today: date, timeout_s: float) -> str | None:
    """Wait for the answer of the process. Returns how it failed, or None."""
    printed, errors = _Output(), _Output()
    async with _pipe() as (stdout, printed_to), _pipe() as (stderr, errors_to):
        try:
            process = await _start(path, answer.fileno(), today, printed_to, errors_to)
        finally:
            os.close(printed_to)
            os.close(errors_to)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(
                    _drain(process, stdout, printed), _drain(process, stderr, errors), _end_with_all_it_started(process)
                )
        except TimeoutError:
            return f"did not come to an end within {timeout_s:g} s; at import it must only define jobs"
        finally:
            _kill(process)
            with contextlib.suppress(TimeoutError):  # one that waits for a disk cannot be killed
                async with asyncio.timeout(GONE_S):
                    await process.wait()
    if max(printed.size, errors.size) > OUTPUT_MAX:
        return f"printed more than {OUTPUT_MAX // 1024 // 1024} MiB at import"
    return _exit_text(process.returncode, str(errors)) if process.returncode else None


async def _start(path: Path, answer: int, today: date, printed_to: int, errors_to: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "rota.client.collect"),
        *(str(path), str(answer), today.isoformat()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=printed_to,
        stderr=errors_to,
        pass_fds=(answer,),
        start_new_session=True,
    )


@contextlib.asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[asyncio.StreamReader, int]]:
    """A pipe for the output of a process. It is not asyncio's own: with those, a process that has ended counts as
    running while anything that it started holds its output open."""
    out, into = os.pipe()
    stream = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(stream)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(out, "rb"))
    try:
        yield stream, into
    finally:
        transport.close()


async def _drain(process: asyncio.subprocess.Process, stream: asyncio.StreamReader, output: _Output) -> None:
    while chunk := await stream.read(65536):
        output.take(chunk)
        if output.size > OUTPUT_MAX:
            _kill(process)


async def _end_with_all_it_started(process: asyncio.subprocess.Process) -> None:
    await process.wait()
    _kill(process)


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _exit_text(code: int | None, errors: str) -> str:
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
    return f"{how} at import: {errors}" if errors else f"{how} at import"


def _result(path: Path, failure: str | None, answer: IO[bytes]) -> Loaded:
    file = str(path)
    answer.seek(0)
    data = answer.read(ANSWER_MAX + 1)
    if failure is None and not data:
        failure = "ended at import, before its jobs were known"
    if failure is None and len(data) > ANSWER_MAX:
        failure = f"has definitions of more than {ANSWER_MAX // 1024 // 1024} MiB"
    if failure is not None:
        return Loaded((), (Problem("", failure, file),))
    try:
        loaded = decode(data.decode(), Loaded)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Loaded((), (Problem("", "spoiled the answer about its jobs", file),))
    return _checked(loaded, file)


def _checked(loaded: Loaded, file: str) -> Loaded:
    """Check the answer again: user code runs in the other process and can forge it."""
    found = [*loaded.problems, *(problem for definition in loaded.definitions for problem in _wrong(definition))]
    if not found and not _is_consistent(loaded):
        found = [Problem("", "spoiled the answer about its handlers")]
    if found:
        return Loaded((), tuple(problem._replace(file=file) for problem in found))
    names = (*loaded.handlers, *loaded.listeners)
    folder = f"{Path(file).resolve().parent}{os.sep}"
    files = tuple(each for each in loaded.files[:FILES_MAX] if each.startswith(folder) and is_whole(each))
    return loaded._replace(files=files, homes=tuple((name, str(Path(file).resolve())) for name in names))


def _wrong(definition: Definition) -> tuple[Problem, ...]:
    report = Report()
    try:
        for name in definition.full_name:
            fields.name(name)
        instants.check(definition.schedule, seed="/".join(definition.full_name))
    except ValueError as error:
        return (Problem("", str(error)),)
    except InvalidInput as error:
        return error.problems
    execution.check(definition, report.within(definition.name))
    try:
        job_alarms([written(it) for it in definition.alarms])
    except ValueError as error:
        report.add((definition.name, "alarms"), str(error))
    return report.problems


def _is_consistent(loaded: Loaded) -> bool:
    """Whether every job runs the function of its own name, and what can be called is just that."""
    names = tuple(handler_name(definition.full_name) for definition in loaded.definitions)
    tasks = [[(task.runner, task.config) for task in it.tasks] for it in loaded.definitions]
    return (
        tasks == [[("python", {"handler": it.name})] for it in loaded.definitions]
        and all(name in names and _is_source(source) for name, source in loaded.sources)
        and all(map(_is_source, loaded.covered))
        and loaded.handlers == names
        and all(map(is_advertised, loaded.listeners))
        and len(loaded.digest) == 64
    )


def _is_source(text: str) -> bool:
    """Whether a text is the source that an app of a name is."""
    kind, _, name = text.partition(" ")
    parts = name.split("/")
    try:
        return kind == "app" and len(parts) <= len(JobName._fields) and [fields.name(it) for it in parts] == parts
    except ValueError:
        return False
