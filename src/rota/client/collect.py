"""The process that runs a Python file to learn its jobs: `python -m rota.client.collect FILE DESCRIPTOR TODAY`.

It answers once, to the descriptor, in the canonical encoding. Whatever the file does, it is told as a problem. Workers
use `run` and `functions` too, to find the functions that were advertised.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.util
import os
import signal
import sys
import traceback
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import ModuleType

from rota.client.app import App, functions_of, place
from rota.client.modules import files_below
from rota.definitions.loaded import Loaded
from rota.definitions.report import one_line
from rota.errors import InvalidInput, Problem
from rota.model.job import Definition, handler_name
from rota.model.listener import is_listener
from rota.model.value import encode

PR_SET_PDEATHSIG = 1
MODULE = "rota_file"
"""The name under which the file runs: never `__main__`, and none that another module could have."""


def read(file: str, today: date) -> Loaded:
    """Run a file and gather the jobs of its apps, and what can be called of them."""
    try:
        code = Path(file).read_bytes()
        found = apps(run(file))
        files = tuple(files_below([str(Path(file).resolve().parent)]))
        if not found:
            return _wrong(file, None, "has no app; write app = rota.App() and put @app.task above functions")
        return _gathered(file, found, today)._replace(digest=_digest(file, code, files), files=files)
    except InvalidInput as error:
        line = _line(file, error)
        return Loaded((), tuple(problem._replace(file=file, line=line) for problem in error.problems))
    except SyntaxError as error:
        own = error.filename in (_whole(file), None)
        where = "" if own else f" in {one_line(str(error.filename))}, line {error.lineno}"
        line = error.lineno if own else _line(file, error)
        return _wrong(file, line, f"is not valid Python{where}: {one_line(str(error.msg))}")
    except SystemExit as error:
        return _wrong(file, _line(file, error), f"calls sys.exit({one_line(repr(error.code))}) at import")
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
        return _wrong(file, _line(file, error), f"raises {type(error).__name__} at import: {one_line(str(error))}")


def run(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(MODULE, file)
    if spec is None or spec.loader is None:
        raise ValueError("its name must end in .py")
    sys.path.insert(0, str(Path(file).resolve().parent))
    sys.path.append(str(Path(__file__).with_name("spawned")))
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module


def apps(module: ModuleType) -> list[App]:
    """The apps among the global names of a module."""
    found = {id(value): value for value in vars(module).values() if isinstance(value, App)}
    return list(found.values())


def functions(module: ModuleType) -> dict[str, Callable[..., object]]:
    """What can be called of the apps of a module, by advertised name."""
    return functions_of(apps(module))


def _gathered(file: str, found: list[App], today: date) -> Loaded:
    known = functions_of(found)
    by_name: dict[tuple[str, ...], Definition] = {}
    twins = []
    for definition in (definition for app in found for definition in app.definitions(today)):
        key = tuple(part.lower() for part in definition.full_name)
        if key in by_name:
            places = " and ".join(place(known[handler_name(it.full_name)]) for it in (by_name[key], definition))
            reason = f"two apps of the file have a task of this name but for capital and small letters: {places}"
            twins.append(Problem(f"{definition.name}.name", reason, file))
        by_name[key] = definition
    if twins:
        return Loaded((), tuple(twins))
    handlers = tuple(handler_name(definition.full_name) for definition in by_name.values())
    return Loaded(
        tuple(by_name.values()),
        (),
        handlers,
        tuple(filter(is_listener, known)),
        sources=tuple((name, app.source) for app in found if app.source for name in app.functions if name in handlers),
        covered=tuple(dict.fromkeys(app.source for app in found if app.source)),
    )


def _digest(file: str, code: bytes, files: tuple[str, ...]) -> str:
    """A name for the code of the file and of the modules beside it that it has loaded."""
    own = Path(file).resolve()
    helpers = [Path(each) for each in files if each != str(own)]
    if not helpers:
        return hashlib.sha256(code).hexdigest()
    whole = hashlib.sha256(hashlib.sha256(code).digest())
    for each in helpers:
        whole.update(str(each.relative_to(own.parent)).encode() + b"\0" + hashlib.sha256(each.read_bytes()).digest())
    return whole.hexdigest()


def _whole(file: str) -> str:
    """A path as the import system names it: without `..`, but with its links."""
    return os.path.abspath(file)  # noqa: PTH100 - resolve() follows links


def _line(file: str, error: BaseException) -> int | None:
    """The line of the file that was running when the error came."""
    whole = _whole(file)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == whole]
    return lines[-1] if lines else None


def _wrong(file: str, line: int | None, reason: str) -> Loaded:
    return Loaded((), (Problem("", reason, file, line),))


def _end_with_parent() -> None:
    """On Linux, ask to be killed when the process that wants the answer ends, however it ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: list[str]) -> None:
    file, descriptor, today = arguments
    _end_with_parent()
    sys.dont_write_bytecode = True
    sys.argv = [file]
    answer = encode(read(file, date.fromisoformat(today)))
    with os.fdopen(int(descriptor), "wb") as stream:
        stream.write(answer.encode())
    sys.stderr.flush()
    os._exit(0)  # threads that the file left behind must not keep the process


if __name__ == "__main__":
    main(sys.argv[1:])
