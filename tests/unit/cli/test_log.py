"""Log lines are one event each, whole, without passwords, whatever is in their values."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import structlog

from rota.cli import log

URL = "postgresql://me:s3cret@db/rota"


@pytest.fixture
def lines() -> Iterator[list[str]]:
    found: list[str] = []
    kept = structlog.get_config()
    yield found
    structlog.configure(**kept)


def test_a_masked_value_leaves_the_json_line_and_the_other_fields_whole(lines: list[str]) -> None:
    log.start("json", sink=lines.append)
    structlog.get_logger().info("lost", store=URL, to="me@example.org", tries=3, more={"urls": [URL], "password": "x"})
    (line,) = lines
    said = json.loads(line)
    assert said["store"] == "postgresql://me:***@db/rota"
    assert said["to"] == "me@example.org"
    assert said["tries"] == 3
    assert said["more"] == {"urls": ["postgresql://me:***@db/rota"], "password": "***"}


def test_a_masked_value_leaves_the_other_fields_of_a_text_line(lines: list[str]) -> None:
    log.start("text", sink=lines.append)
    structlog.get_logger().info("lost", store=URL, to="me@example.org")
    assert lines[0].endswith("lost store=postgresql://me:***@db/rota to=me@example.org")


@pytest.mark.parametrize("form", ["json", "text"])
def test_control_characters_do_not_get_into_lines(lines: list[str], form: str) -> None:
    log.start(form, sink=lines.append)
    error = ValueError("\x1b]0;owned\x07")
    structlog.get_logger().error("\x1b[2J", value="\x9b1m", exc_info=error)
    assert all(char.isprintable() or char == "\n" for char in lines[0])
    assert "owned" in lines[0]
