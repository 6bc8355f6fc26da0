"""The life of one private server process: prepare, start, wait for an answer, stop, kill, restart.

      new --start()--> running --stop()--> stopped --start()--> running      restart() = stop() and start()
                          `----kill()--------^                               close()   = kill and remove the data

The calls block; from a coroutine use `await asyncio.to_thread(server.restart)`. It never touches a process that it did
not start.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, ClassVar, Self

from tests.servers.ports import free_port

NOBODY = 65534
PREPARE_TIMEOUT = 60.0
READY_TIMEOUT = 60.0
STOP_TIMEOUT = 30.0
_GUARD = Path(__file__).with_name("guard.py")


class ServerMissing(Exception):
    """The server's program is not installed on this machine."""

    def __init__(self, program: str) -> None:
        super().__init__(f"{program} is not installed: run scripts/services install")


class ServerFailed(Exception):
    """The server did not do in time what it was asked; the end of its log is in the message."""


class PrivateServer:
    """A server with its own data folder, port and guard. The subclasses say how it is prepared, run and asked."""

    name: ClassVar[str]
    stop_signal: ClassVar[str] = "SIGTERM"
    ready_timeout: ClassVar[float] = READY_TIMEOUT

    def __init__(self) -> None:
        self.port = free_port()
        self.folder: Path | None = None
        self.pid: int | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def prepare(self, folder: Path) -> None:
        """Fill the empty data folder."""
        raise NotImplementedError

    def command(self, folder: Path) -> Sequence[str | Path]:
        """The command that runs the server in the foreground."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Whether the server speaks its protocol now; raises OSError while nobody listens."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def log(self) -> str:
        """What the server has written so far."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def start(self) -> None:
        """Start the server, at first on fresh data, later on what it has; return once it answers."""
        if self._guard is not None:
            raise RuntimeError(f"{self.name} is running already")
        if self.folder is None:
            self.folder = self._prepared_folder()
        with self._log_path.open("ab") as log:
            self._guard = self._guarded(self.command(self.folder), log)
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline() or 0) or None
        try:
            wait_until(
                self._is_ready, self.ready_timeout, f"{self.name} to answer on port {self.port}", lambda: self.log
            )
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut the server down in its own orderly way and reap it. Does nothing when it is not running."""
        if self._guard is None:
            return
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError):  # the server ended by itself, and the guard with it
            self._guard.stdin.write(f"{self.stop_signal}\n".encode())
            self._guard.stdin.flush()
        try:
            self._guard.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise ServerFailed(f"{self.name} ignored {self.stop_signal} for {STOP_TIMEOUT} s and was killed") from error
        self._forget()

    def kill(self) -> None:
        """Kill every process of the server at once, as a power cut would. Does nothing when it is not running."""
        if self._guard is None:
            return
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError):  # the server ended by itself, and the guard with it
            self._guard.stdin.write(b"kill\n")
            self._guard.stdin.flush()
        self._guard.wait(STOP_TIMEOUT)
        self._forget()

    def freeze(self) -> None:
        """Stop every process of the server: it accepts connections and answers nothing. `kill` works all the same."""
        assert self.pid is not None, f"{self.name} is not running"
        for pid in _family(self.pid):
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.pid is not None, f"{self.name} is not running"
        for pid in _family(self.pid):
            os.kill(pid, signal.SIGCONT)

    def restart(self) -> None:
        """Stop and start on the same data and port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Kill the server and remove its data."""
        self.kill()
        if self.folder is not None:
            shutil.rmtree(self.folder)
            self.folder = None

    @property
    def _log_path(self) -> Path:
        assert self.folder is not None, f"{self.name} was never started"
        return self.folder / "server.log"

    def _prepared_folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix=f"rota-{self.name}-"))
        try:
            uid = server_uid()
            os.chown(folder, uid, -1)
            self.prepare(folder)
        except BaseException:
            shutil.rmtree(folder)
            raise
        return folder

    def _guarded(self, command: Sequence[str | Path], log: IO[bytes]) -> subprocess.Popen[bytes]:
        # A session of its own: an interrupt from the keyboard is for the tests, which then stop the server.
        return subprocess.Popen(
            [sys.executable, "-I", "-S", _GUARD, str(server_uid()), str(self.folder), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )

    def _is_ready(self) -> bool:
        if self._guard is not None and self._guard.poll() is not None:
            raise ServerFailed(f"{self.name} ended while starting:\n{self.log[-2000:]}")
        try:
            return self.answers()
        except OSError:
            return False

    def _forget(self) -> None:
        assert self._guard is not None
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._guard = None
        self.pid = None


def _family(pid: int) -> list[int]:
    """A process and all that come from it."""
    children = [int(it) for path in Path(f"/proc/{pid}/task").glob("*/children") for it in path.read_text().split()]
    return [pid, *(it for child in children for it in _family(child))]


def server_uid() -> int:
    """Who runs the servers: nobody instead of root, because PostgreSQL refuses root."""
    return NOBODY if os.getuid() == 0 else os.getuid()


def run_to_prepare(command: Sequence[str | Path], folder: Path) -> None:
    """Run one preparing command to its end, as the user of the servers."""
    uid = server_uid()
    as_root = os.getuid() == 0
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "LC_ALL": "C"},
        user=uid if as_root else None,
        group=uid if as_root else None,
        extra_groups=[] if as_root else None,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PREPARE_TIMEOUT,
        check=False,
    )
    if done.returncode != 0:
        raise ServerFailed(f"{command[0]} failed with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")


def wait_until(
    condition: Callable[[], bool], timeout: float, what: str, evidence: Callable[[], str] = lambda: ""
) -> None:
    """Return as soon as the condition holds; after `timeout` seconds raise ServerFailed with the evidence."""
    give_up = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > give_up:
            raise ServerFailed(f"waited {timeout} s for {what}\n{evidence()[-2000:]}")
        time.sleep(0.02)
