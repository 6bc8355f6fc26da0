"""The life of a node process: start, kill, freeze, thaw, and what its log says."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


ELSEWHERE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""As on another host: process ids mean nothing to anybody outside."""


def lease(lease_s: float, margin_s: float) -> dict[str, str]:
    """The settings of a lease."""
    return {"ROTA_LEASE_LEASE_S": f"{lease_s:g}", "ROTA_LEASE_MARGIN_S": f"{margin_s:g}"}


SHORT_S, SHORT_MARGIN_S = 6.0, 1.0
"""A node that stands still for 3 s on a busy machine keeps its work; a test that waits for the end of one takes 7 s."""
SHORT = lease(SHORT_S, SHORT_MARGIN_S)

LEEWAY_S = 1.0
"""What a machine with two cores that does much else may add to a bound of docs/failure.md."""


class NodeProcess:
    """One node in a process group of its own. `skew_s` sets its wall clock off by libfaketime, `settings` are variables
    of the environment, `within` is a command that runs another one under bounds or in a namespace, `python` is that of
    another release."""

    def __init__(
        self,
        name: str,
        store: str,
        folder: Path,
        *,
        app: Path | None = None,
        settings: Mapping[str, str] | None = None,
        skew_s: float = 0,
        mutant: str | None = None,
        elsewhere: bool = False,
        within: Sequence[str] = (),
        program: Sequence[str] = ("tests.cluster.node",),
        python: Path = Path(sys.executable),
    ) -> None:
        self.name = name
        self.skew_s = skew_s
        self.log_path = folder / f"{name}.log"
        host = "elsewhere" if elsewhere else "here"
        own = {"ROTA_EXECUTOR_STATE_PATH": str(folder / f"state-{host}"), "ROTA_LOGS_PATH": str(folder / "logs")}
        self.settings = {**own, **(settings or {})}
        self._command = [str(python), "-m", *program, "--store", store, "--name", name]
        self._command += ["--app", str(app)] if app else []
        self._command += ["--mutant", mutant] if mutant else []
        if elsewhere:
            self._command = [*ELSEWHERE, *self._command]
        self._command = [*within, *self._command]
        self._process: subprocess.Popen[bytes] | None = None
        self.own_ends = 0
        """How often it ended by itself, which a node never does."""

    def start(self) -> None:
        self._notice_end()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env={**os.environ, **self.settings, **_clock_off(self.skew_s)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the agent."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, also when it is frozen; returns when it is gone."""
        self._notice_end()
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def kill_agent(self) -> None:
        """SIGKILL to the agent only; returns when it is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)
        self._process = None

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """To the agent only: what it has started sees nothing of it."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    def ended(self, within_s: float) -> int:
        """Wait until it has ended by itself, as it was asked to; returns its exit code."""
        assert self._process is not None
        code = self._process.wait(within_s)
        self._process = None
        return code

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    @property
    def offsets_s(self) -> list[float]:
        """How far the wall clock was off at each start, by the monotonic clock that all processes share."""
        own = time.time() - time.monotonic()
        clocks = [json.loads(line) for line in self.log.splitlines() if line.startswith('{"wall"')]
        return [it["wall"] - it["monotonic"] - own for it in clocks]

    def _notice_end(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            self.own_ends += 1
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def _clock_off(skew_s: float) -> dict[str, str]:
    if not skew_s:
        return {}
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    # The monotonic clock stays real: with a faked one waits hang, and no promise of ours rests on it being wrong.
    return {"LD_PRELOAD": str(library), "FAKETIME": f"{skew_s:+g}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
