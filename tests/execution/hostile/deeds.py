"""What a hostile program tries, run as `python -I -S deeds.py CONTEXT`: each deed in a process of its own.

None of them does harm where it works. The outcome of all is written as JSON to the file that the context names.
With `--control` nobody holds it back: it tries everything on processes of its own, to show that it could work.
"""

# ruff: noqa: PTH104, PTH110, PTH123

import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import time

if not __package__:
    sys.path.append(__file__.rsplit("/", 4)[0])

from tests.execution.hostile import holders, rights, sockets
from tests.execution.hostile.calls import FAMILIES, NEWNS, call
from tests.execution.hostile.victim import victims

TABLES = (holders, rights, sockets)
DEEDS = __file__
HANGS = b"worked? it hangs"


def outcome(deed, context, before=lambda: None):
    """`worked`, or why not; in a child that may not take long."""
    near, far = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(near)
        try:
            os.chdir(context["own_folder"])
            before()
            deed({**context, "known": [far, *context.get("known", [])]})
            said = "worked"
        except OSError as error:
            said = error.strerror or "refused"
        except ValueError as error:  # of limits
            said = str(error)
        except BaseException as error:  # noqa: BLE001 - a deed that is wrong must show
            said = f"worked? {error!r}"
        os.write(far, said.encode())
        os._exit(0)
    os.close(far)
    said = os.read(near, 4096) if select.select([near], [], [], 20)[0] else HANGS
    os.close(near)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return said.decode() or "it died"


def controlled(deed, context):
    """The same with all rights, on processes that nobody protects, and with mounts of its own."""
    with victims() as found, open("/dev/null"):
        return outcome(deed, {**context, **found}, lambda: call("unshare", NEWNS))


def main():
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    with open(sys.argv[1]) as file:
        context = json.load(file)
    own = context["own_folder"] = context["folders"][str(os.getuid())]
    context["own"] = own + "/own"
    context.setdefault("supervisor", os.getppid())
    open(context["own"], "w").close()
    if "--control" in sys.argv:
        _raise_loopback()
    attempt = controlled if "--control" in sys.argv else outcome
    found = {
        family: {name: attempt(deed, context) for name, deed in deeds.items()} for family, deeds in FAMILIES.items()
    }
    with open(own + "/.found", "w") as file:
        json.dump(found, file)
    os.rename(own + "/.found", own + "/found")
    if context["stays"]:
        signal.pause()


def _raise_loopback():
    with socket.socket() as link:
        fcntl.ioctl(link, 0x8914, struct.pack("16sH14x", b"lo", 0x41))


if __name__ == "__main__":
    main()
