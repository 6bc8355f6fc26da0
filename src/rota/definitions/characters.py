"""Decode files, and refuse characters that hide or break what is written: control characters, half characters, bytes
that are not UTF-8."""

from __future__ import annotations

import codecs
import re

from rota.definitions.report import Report

SIZE_MAX = 1024 * 1024
REPORTED_MAX = 20

_BOM = "\ufeff"
_WIDE = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_unfit = re.compile(
    "[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f"  # control characters; of them only the line feed may stand in a file
    "\u2028\u2029\u202a-\u202e\u2066-\u2069"  # line and paragraph separators, changes of the reading direction
    "\ud800-\udfff\ufeff\ufffe\uffff]"  # halves of characters, a byte order mark inside, no characters at all
    "|\r(?!\n)"
)
_broken = re.compile("[\x00\ud800-\udfff]")
_hidden = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def decoded(source: str | bytes, report: Report) -> str | None:
    """The text of a file, or nothing when it is not fit to be read."""
    if len(source) > SIZE_MAX:
        report.add_at(None, "", f"is larger than {SIZE_MAX // 1024} KiB")
        return None
    text = source if isinstance(source, str) else _from_utf8(source, report)
    if text is None:
        return None
    text = text.removeprefix(_BOM)
    return None if _holds_unfit(text, report) else text


def is_whole(text: str) -> bool:
    """Whether a text can be stored and handed to a program: no NUL, no half characters."""
    return _broken.search(text) is None


def is_plain(text: str) -> bool:
    """Whether a text can be shown on one line as it is meant: nothing in it hides, breaks or turns the line."""
    return _hidden.search(text) is None


def _from_utf8(source: bytes, report: Report) -> str | None:
    if source.startswith(_WIDE):
        report.add_at(1, "", "is encoded in UTF-16 or UTF-32; save it as UTF-8")
        return None
    try:
        return source.decode()
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        report.add_at(line, "", f"is not UTF-8: byte {error.start} is 0x{source[error.start]:02x}")
        return None


def _holds_unfit(text: str, report: Report) -> bool:
    found = 0
    for match in _unfit.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        report.add_at(line, "", _unfit_reason(match[0]))
        found += 1
        if found == REPORTED_MAX:
            break
    return found > 0


def _unfit_reason(char: str) -> str:
    if char == "\t":
        return "holds a tab; indent with blanks, and write \\t inside double quotes where a value needs one"
    return f"holds the unprintable character U+{ord(char):04X}"
