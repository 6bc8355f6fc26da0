"""Claims: ephemeral nodes of the session that a link is. What is not this session's own is never changed here.

Many at a time are one transaction, for as a rule all of them can be done. If one cannot, nothing was done, and each is
tried by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rota.coordinators.zookeeper.tree import No, Znode, ZnodeTree, encoded

if TYPE_CHECKING:
    from rota.coordinators.zookeeper.link import Link


TOGETHER_MAX = 256_000
"""How many bytes one transaction may write: ZooKeeper takes requests of a million."""


async def claim(tree: ZnodeTree, link: Link, values: Mapping[str, str]) -> dict[str, int]:
    """Make claims of what is free; says the fences of all that this session has of these."""
    return await _claim_all(tree, link, values) or await _claim_each(tree, link, values)


async def release(tree: ZnodeTree, link: Link, fences: Mapping[str, int]) -> None:
    """Remove claims that this session still has; one whose value changes meanwhile is looked at again."""
    while fences:
        found = await tree.nodes(link, fences)
        held = {key: it for key, it in found.items() if isinstance(it, Znode) and _holds(link, it, fences[key])}
        if held and await link.together(*(("delete", tree.path(key), it.edition) for key, it in held.items())) == 0:
            return
        done = await asyncio.gather(*(link.delete(tree.path(key), it.edition) for key, it in held.items()))
        fences = {key: fences[key] for key, answer in zip(held, done, strict=True) if answer is No.CHANGED}


async def update(tree: ZnodeTree, link: Link, key: str, fence: int, value: str) -> bool:
    """Change the value of a claim; False: this session has it no more."""
    while True:
        node = await tree.node(link, key)
        if isinstance(node, No) or not _holds(link, node, fence):
            return False
        answer = await link.set(tree.path(key), encoded(value), node.edition)
        if answer is not No.CHANGED:
            return isinstance(answer, Znode)


async def _claim_all(tree: ZnodeTree, link: Link, values: Mapping[str, str]) -> dict[str, int]:
    """All, or none."""
    deeds = [("create", tree.path(key), encoded(value), None, True) for key, value in values.items()]
    if len(deeds) < 2 or sum(len(data) for _, _, data, *_ in deeds) > TOGETHER_MAX or await link.together(*deeds) != 0:
        return {}
    first = await tree.node(link, next(iter(values)))
    if isinstance(first, No) or first.owner != link.number:
        return {}  # it was taken away meanwhile, and others may have been
    return dict.fromkeys(values, first.created)  # one transaction, one number


async def _claim_each(tree: ZnodeTree, link: Link, values: Mapping[str, str]) -> dict[str, int]:
    made = await tree.create(link, values, ephemeral=True)
    taken = [key for key, it in made.items() if it is No.EXISTS]
    found = await tree.nodes(link, taken) if taken else {}
    won = {key: it.created for key, it in (made | found).items() if isinstance(it, Znode) and it.owner == link.number}
    folders = {key: it for key, it in found.items() if isinstance(it, Znode) and it.is_folder_only}
    for key, node in folders.items():
        await tree.vacate(link, key, node)
    return won | (await _claim_each(tree, link, {key: values[key] for key in folders}) if folders else {})


def _holds(link: Link, node: Znode, fence: int) -> bool:
    return node.owner == link.number and node.created == fence
