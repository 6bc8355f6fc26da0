"""Programs that try to outlive their boundary, started as `python -I -S shapes.py SHAPE FOLDER`.

Every process of them opens a file of its own in FOLDER and locks it. The kernel lets the lock go when the process has
ended, however it did: who can lock a file knows that its owner is gone, without asking the product or reading /proc.
"""

import fcntl
import os
import signal
import sys
import time

STORM_LIVE = int(os.environ.get("STORM_LIVE", "10"))
_kept = []


def main() -> None:
    shape, folder = sys.argv[1:]
    witness(folder, f"{shape}-main")
    SHAPES[shape](folder)
    sleep_for_ever()


def witness(folder: str, name: str) -> None:
    """Open and lock a file that nobody else has; its presence says that this process has come so far."""
    file = f"{name}-{time.monotonic_ns()}-{os.getpid()}"
    descriptor = os.open(f"{folder}/.{file}", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.rename(f"{folder}/.{file}", f"{folder}/{file}")  # noqa: PTH104 - quick to start without pathlib
    _kept.append(descriptor)


def plain(folder: str) -> None:
    if os.fork() == 0:
        witness(folder, "child")
        sleep_for_ever()


def setsid(folder: str) -> None:
    if os.fork() == 0:
        os.setsid()
        witness(folder, "child")
        sleep_for_ever()


def double_fork(folder: str) -> None:
    if (child := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 3)
            witness(folder, "grandchild")
            sleep_for_ever()
        os._exit(0)
    os.waitpid(child, 0)


def nohup(folder: str) -> None:
    if os.fork() == 0:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        witness(folder, "child")
        sleep_for_ever()


def stubborn(folder: str) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    plain(folder)


def storm(folder: str) -> None:
    """Keeps STORM_LIVE children, each of which soon ends and is replaced, half of them in sessions of their own."""
    live: set[int] = set()
    first = True
    while True:
        while len(live) < STORM_LIVE:
            if (child := os.fork()) == 0:
                if os.getpid() % 2:
                    os.setsid()
                if first:
                    witness(folder, "drop")
                time.sleep(0.05 + os.getpid() % 7 / 50)
                os._exit(0)
            live.add(child)
        first = False
        live.discard(os.wait()[0])


def chain(folder: str) -> None:
    """One process at a time, which forks and ends: whoever looks for it finds its ancestors."""
    os.setsid() if os.getpid() != os.getsid(0) else None
    if os.fork() == 0:
        witness(folder, "chain")
        while os.fork() == 0:
            pass
        os._exit(0)


def sleep_for_ever() -> None:
    while True:
        time.sleep(1000)


SHAPES = {
    "plain": plain,
    "setsid": setsid,
    "double_fork": double_fork,
    "nohup": nohup,
    "storm": storm,
    "stubborn": stubborn,
    "chain": chain,
}

if __name__ == "__main__":
    main()
