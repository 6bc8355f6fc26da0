"""Starts a worker: reads its setup, loads the app, serves orders."""

from __future__ import annotations

import gc
import os
import socket
import sys

import msgspec

from rota.execution.worker import call, leftovers
from rota.execution.worker.channel import EXIT_CUT_OFF, AgentChannel, end
from rota.execution.worker.clock import monotonic
from rota.execution.worker.functions import Functions
from rota.execution.worker.stdio import Outputs
from rota.execution.worker_protocol import Failure, Setup, WorkerReport


def main() -> None:
    link = socket.socket(fileno=int(os.environ.pop("ROTA_CHANNEL")))
    link.setblocking(True)
    link.set_inheritable(False)
    leftovers.adopt()
    outputs = Outputs()
    outputs.install()
    channel = AgentChannel(link)
    frame = channel.next()
    if frame is None:
        end(EXIT_CUT_OFF)
    serve(channel, outputs, msgspec.msgpack.decode(frame, type=Setup))
    outputs.settle()


def serve(channel: AgentChannel, outputs: Outputs, setup: Setup) -> None:
    functions = Functions(setup)
    try:
        functions.load()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is reported
        sys.stderr.write(call.traceback_text(error))
        outputs.settle()
        cause = call.causes(error)
        message = call.bounded_text(f"{setup.app} cannot be loaded: {call.described(error)}")
        channel.send(WorkerReport(broken=Failure(0, None, monotonic(), cause, message, None)))
        return
    gc.collect()
    gc.freeze()  # what the app has loaded stays: the collector need not look through it again and again
    channel.send(WorkerReport(ready=True, files=functions.new_files()))
    if setup.shared:
        from rota.execution.worker.shared import SharedWorker

        SharedWorker(channel, functions, outputs, setup).serve()
    else:
        from rota.execution.worker.serial import SerialWorker

        SerialWorker(channel, functions, outputs, setup).serve()


if __name__ == "__main__":
    main()
