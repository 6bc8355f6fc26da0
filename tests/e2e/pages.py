"""The pages for users, taken apart: blocks with their language and title, commands with what they show.

A block is one of these; what is none of them fails:

    console               lines after `$ ` are commands, the others what they print
    python, yaml, toml, ini, dockerfile, crontab, json
                          what their names say; `title="hello.py"` is the name of the file to keep it in
    url                   addresses of stores, one on a line
    text                  output or a picture: nothing to check
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^ *```(?P<language>\w*)(?: +title=\"(?P<title>[^\"]+)\")?(?P<rest>.*)$")
_SPAN = re.compile(r"(?<!`)`(rota [^`]+)`(?!`)")


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    section: str
    language: str
    title: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


class Command(NamedTuple):
    """A command of a page, and the lines that the page shows below it."""

    where: str
    section: str
    text: str
    shown: tuple[str, ...]


def user_pages() -> list[Path]:
    """The README and what is at the top of docs; what is for builders is in a folder below."""
    return [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


def all_pages() -> list[Path]:
    return [*(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")), *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    section, opened, lines = "", None, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is not None and line.strip() == "```":
            yield Block(page.name, opened[0], section, *opened[1:], "".join(f"{it}\n" for it in lines))
            opened = None
        elif opened is not None:
            lines.append(line)
        elif fence:
            assert not fence["rest"], f"{page.name}:{number}: what does {fence['rest']!r} mean?"
            opened, lines = (number, fence["language"], fence["title"] or ""), []
        elif line.startswith("## "):
            section = line[3:]
    assert opened is None, f"{page.name}: a block has no end"


def commands(block: Block) -> list[Command]:
    """The commands of a console block. A line that ends with a backslash goes on."""
    found: list[Command] = []
    going_on = False
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if going_on:
            found[-1] = found[-1]._replace(text=f"{found[-1].text[:-1]}{line.strip()}")
        elif line.startswith("$ "):
            found.append(Command(f"{block.page}:{number}", block.section, line[2:], ()))
        elif found:
            found[-1] = found[-1]._replace(shown=(*found[-1].shown, line))
        going_on = bool(found) and not found[-1].shown and found[-1].text.endswith("\\")
    return found


def spans(page: Path) -> Iterator[tuple[str, str]]:
    """Commands of rota inside of sentences and tables, with their places."""
    inside = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        inside ^= line.strip().startswith("```")
        if not inside:
            yield from ((f"{page.name}:{number}", it.replace("\\|", "|")) for it in _SPAN.findall(line))
