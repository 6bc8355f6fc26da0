"""Command: a program by its argument list, never by a shell, with the message as a line of JSON on its input.

It runs in a boundary of its own: when its time is over it is killed with everything that it started, also if this
process is frozen or dead by then.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rota.alarms.channels.channel import AlarmChannel, CourierSettings, message_json
from rota.errors import Undelivered
from rota.execution import environment
from rota.execution.kinds.shell import argv
from rota.model.alarm import Channel, Message
from rota.model.work import Bounds
from rota.ports import Clock

if TYPE_CHECKING:
    from rota.execution.isolation.process_tree import ProcessTree, TreeEnd
    from rota.execution.isolation.tree_order import TreeSpec

OUTPUT_MAX = 2000
"""How much of the end of the output is kept for the answer."""
PIECE = 64 * 1024
_INPUT = Path(__file__).with_name("command_input.py")
"""Becomes the command, with the message as its input: a boundary gives every program an empty input."""


class CommandChannel(AlarmChannel):
    """`command: [page, now]`"""

    name = "command"

    def to(self, value: object) -> tuple[str, ...]:
        return tuple(argv(value))

    def written(self, to: tuple[str, ...]) -> object:
        return list(to)

    async def send(self, settings: CourierSettings, clock: Clock, channel: Channel, message: Message) -> str:
        """Run the program, and return its exit code and what it printed last."""
        from rota.execution.isolation.process_trees import ProcessTrees

        process_trees = await ProcessTrees.open(state_dir=Path(settings.state_dir), node=settings.node)
        try:
            process_trees.renew(clock.boottime() + settings.send_s)
            tree = await process_trees.start(_spec(settings, channel, message))
            printed, end = await _fed(tree, message_json(message) + b"\n")
        finally:
            await process_trees.close()
        said = printed.decode(errors="replace").strip()
        if end.code != 0:
            raise Undelivered(f"{_how(end)}: {said}" if said else _how(end))
        return f"exit code 0: {said}" if said else "exit code 0"


def _spec(settings: CourierSettings, channel: Channel, message: Message) -> TreeSpec:
    from rota.execution.isolation.tree_order import TreeSpec

    own = {"ROTA_ALARM": str(message.kind), "ROTA_MESSAGE": message.id}
    return TreeSpec(
        argv=(sys.executable, "-I", str(_INPUT), *channel.to),
        env=environment.basic(settings.environment, settings.user, own),
        bounds=Bounds(user=settings.user, directory="/"),  # not the node's own folder, where its files may lie
        label=f"alarm {message.id}",
        channel=True,
    )


async def _fed(tree: ProcessTree, content: bytes) -> tuple[bytes, TreeEnd]:
    """Write the message, read what is printed, until the program is gone with all that it started."""
    assert tree.channel is not None
    loop = asyncio.get_running_loop()
    feeding = loop.create_task(_feed(tree.channel, content))
    printed = bytearray()

    def read() -> None:
        piece = b""
        with suppress(OSError):
            piece = os.read(tree.output, PIECE)
        if not piece:
            loop.remove_reader(tree.output)
        printed.extend(piece)
        del printed[:-OUTPUT_MAX]

    loop.add_reader(tree.output, read)
    try:
        end = await tree.ended()
        read()
        return bytes(printed), end
    finally:
        loop.remove_reader(tree.output)
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        tree.channel.close()
        os.close(tree.output)


async def _feed(channel: socket.socket, content: bytes) -> None:
    """Write the message. A program that ends without reading it is no failure."""
    channel.setblocking(False)
    with suppress(OSError):
        await asyncio.get_running_loop().sock_sendall(channel, content)
        channel.shutdown(socket.SHUT_WR)


def _how(end: TreeEnd) -> str:
    if end.killed_by_switch:
        return "killed: it took too long"
    return f"ended by signal {end.signal}" if end.code is None else f"exit code {end.code}"
