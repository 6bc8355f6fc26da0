"""Start a worker: hear what it may run, load that, serve."""

from __future__ import annotations

import os
import socket
import sys

import msgspec

from rota.runners.wire import Failure, Report, Setup
from rota.runners.worker import call, leftovers
from rota.runners.worker.channel import EXIT_CUT_OFF, Channel, end
from rota.runners.worker.load import Functions
from rota.runners.worker.stdio import Outputs
from rota.runners.worker.ticks import monotonic


def main() -> None:
    link = socket.socket(fileno=int(os.environ.pop("ROTA_CHANNEL")))
    link.setblocking(True)
    link.set_inheritable(False)
    leftovers.adopt()
    outputs = Outputs()
    outputs.install()
    channel = Channel(link)
    frame = channel.next()
    if frame is None:
        end(EXIT_CUT_OFF)
    serve(channel, outputs, msgspec.msgpack.decode(frame, type=Setup))
    outputs.settle()


def serve(channel: Channel, outputs: Outputs, setup: Setup) -> None:
    functions = Functions(setup)
    try:
        functions.load()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
        sys.stderr.write(call.told(error))
        outputs.settle()
        cause = call.causes(error)
        message = call.bounded(f"{setup.app} cannot be loaded: {call.described(error)}")
        channel.send(Report(broken=Failure(0, None, monotonic(), cause, message, None)))
        return
    channel.send(Report(ready=True, files=functions.new_files()))
    if setup.shared:
        from rota.runners.worker.shared import Shared

        Shared(channel, functions, outputs, setup).serve()
    else:
        from rota.runners.worker.serial import Serial

        Serial(channel, functions, outputs, setup).serve()


if __name__ == "__main__":
    main()
