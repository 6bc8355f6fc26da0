"""Print text of unknown origin safely: escape codes are shown or dropped, never sent to the terminal.

Log output, messages, keys and parameters come from whoever wrote a task. An escape code in them could move the cursor,
rename the window or answer in the name of the person who looks. Colours are left out; every other control character is
shown as `\\x1b`. A pipe or file gets the bytes as they are, from `rota run logs` only.
"""

from __future__ import annotations

import codecs
import re

_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,40}m")
_UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-9;:]{0,40})?|\r)\Z")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_C1 = re.compile(r"[\x7f-\x9f]")


def plain(text: str) -> str:
    """Return the text safe to print: lines and tabs stay, other control characters become visible."""
    if not _CONTROL.search(text):
        return text
    text = _COLOUR.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def plain_json(text: str) -> str:
    """The same for JSON text, which has escaped all but these already; its meaning stays."""
    return _C1.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class PlainStream:
    """Turns bytes that arrive in pieces into text that is safe to print. A piece may end inside an escape code."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._kept = ""

    def feed(self, data: bytes) -> str:
        text = self._kept + self._decoder.decode(data)
        rest = _UNFINISHED.search(text)
        self._kept = "" if rest is None else rest[0]
        return plain(text[: len(text) - len(self._kept)])

    def close(self) -> str:
        text, self._kept = self._kept + self._decoder.decode(b"", final=True), ""
        return plain(text)
