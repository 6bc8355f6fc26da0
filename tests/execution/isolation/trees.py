"""Small orders, and what a tree of them said."""

import asyncio
import os
import sys
from typing import Any

from rota.execution.isolation.process_tree import ProcessTree
from rota.execution.isolation.tree_order import TreeSpec
from rota.model.work import Bounds

PATH = "/usr/local/bin:/usr/bin:/bin"


def spec(*argv: str, env: dict[str, str] | None = None, bounds: Bounds | None = None, **more: Any) -> TreeSpec:
    environment = {"PATH": PATH} if env is None else env
    return TreeSpec(argv=argv, env=environment, bounds=bounds or Bounds(), label="one", **more)


def shell(script: str, **more: Any) -> TreeSpec:
    return spec("/bin/sh", "-c", script, **more)


def python(script: str, *arguments: str, **more: Any) -> TreeSpec:
    return spec(sys.executable, "-I", "-S", "-c", script, *arguments, **more)


async def all_output(tree: ProcessTree) -> str:
    """What the tree writes until the last process that could write has ended."""
    parts = []
    while part := await _read(tree.output):
        parts.append(part)
    os.close(tree.output)
    return b"".join(parts).decode()


async def first_line(tree: ProcessTree) -> str:
    """What it has written when there is a whole line; a sign that it has come so far."""
    text = b""
    while not text.endswith(b"\n"):
        part = await _read(tree.output)
        assert part, f"it ended after {text!r}"
        text += part
    return text.decode().strip()


async def _read(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, 65536)
