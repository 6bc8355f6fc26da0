"""What somebody else wrote is seen on a terminal, and does nothing to it."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from rota.cli.output import PlainStream, plain, plain_json

CLI = Path(__file__).parents[3] / "src" / "rota" / "cli"
MAY_PRINT = {"output.py": "the one place that prints", "log.py": "log lines, made plain by their own processor"}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("two\tlines\nof text, ünï ☃", "two\tlines\nof text, ünï ☃"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("\x1b[2J\x1b[H", "\\x1b[2J\\x1b[H"),
        ("\x9b2J\x7f", "\\x9b2J\\x7f"),
        ("10 %\r20 %\r\ndone\n", "10 %\n20 %\ndone\n"),
        ("a\x08b\x00", "a\\x08b\\x00"),
    ],
)
def test_escape_codes_are_shown_and_not_sent(given: str, shown: str) -> None:
    assert plain(given) == shown


def test_json_keeps_its_meaning_and_has_no_control_characters_either() -> None:
    value = {"text": "\x1b[2J\x9b1m\x7f ok"}
    text = plain_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert text.isprintable()


def test_a_stream_that_is_cut_anywhere_is_as_plain_as_the_whole() -> None:
    data = "a\x1b[31mré\x1b[0m\r\nb\x1b[2J\rc\x1b".encode()
    for cut in range(len(data) + 1):
        stream = PlainStream()
        assert stream.feed(data[:cut]) + stream.feed(data[cut:]) + stream.close() == plain(data.decode())


def test_bytes_that_are_no_text_are_shown() -> None:
    stream = PlainStream()
    assert stream.feed(b"\xff\xfe ok") + stream.close() == "\\xff\\xfe ok"


def test_commands_print_only_through_the_one_place_that_makes_texts_plain() -> None:
    found = [
        f"{file.name}:{node.lineno}"
        for file in sorted(CLI.glob("*.py"))
        if file.name not in MAY_PRINT
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"print", "click.echo", "click.secho"}
    ]
    assert not found
