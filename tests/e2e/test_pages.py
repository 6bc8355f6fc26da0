"""The pages for users are true: their files are kept, their commands typed, and what they show is what is seen."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.alarms.channels.webhook import signature
from tests.e2e import accepted
from tests.e2e.pages import DOCS, ROOT, blocks, commands, spans, user_pages
from tests.e2e.reader import ELSEWHERE, Reader
from tests.e2e.rig import Home
from tests.servers.postgres import PostgresDatabases
from tests.servers.smtp import mail_server

FOLLOWED = [
    ROOT / "README.md",
    *(
        DOCS / f"{name}.md"
        for name in (
            "alarms",
            "assigning",
            "coming-from-celery-and-apscheduler",
            "coming-from-cron-and-airflow",
            "configuration",
            "deployment",
            "dispatch",
            "installation",
            "security",
            "testing-your-jobs",
            "troubleshooting",
            "tutorial",
        )
    ),
]
"""Pages whose every command is typed. Those of the others, which show single moments, are only looked at."""
STORED = {"alarms", "dispatch"}
"""Those that tell of a store which is there, and of a mail server."""
STORE = "postgresql://rota@db/rota"


@pytest.fixture(scope="module")
def smtp_port() -> Iterator[int]:
    """A mail server in a thread of its own: commands have event loops of their own here."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = mail_server()
    yield asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(30).port
    asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.timeout(300)  # dozens of commands, some of which start nodes
@pytest.mark.parametrize("page", FOLLOWED, ids=lambda it: it.stem)
def test_a_page_can_be_followed(page: Path, tmp_path: Path, postgres_server: PostgresDatabases, smtp_port: int) -> None:
    url = postgres_server.url(asyncio.run(postgres_server.create_database()))
    found = list(blocks(page))
    with Reader(tmp_path, {STORE: url}) as reader:
        if page.stem in STORED:
            Home(reader.folder).ok("store", "migrate")
            reader.env |= {"ROTA_ALARM_SMTP_HOST": "127.0.0.1", "ROTA_ALARM_SMTP_PORT": str(smtp_port)}
        for block in found:
            reader.read(block)
    assert reader.typed == [it.text for block in found if block.language == "console" for it in commands(block)]
    assert found


@pytest.mark.parametrize("page", [it for it in user_pages() if it not in FOLLOWED], ids=lambda it: it.stem)
def test_what_a_page_shows_is_accepted(page: Path, tmp_path: Path) -> None:
    looks = accepted.Accepted(tmp_path)
    for block in blocks(page):
        if block.language != "console":
            looks.look_at(block)
            continue
        typed = commands(block)
        assert typed, f"{block.where}: no command; if it is output, mark it as text"
        for command in typed:
            word = command.text.split()[0]
            assert word == "rota" or word in ELSEWHERE, f"{command.where}: nothing checks {word}"
            if word == "rota":
                accepted.command(command.text)
            else:
                ELSEWHERE[word](command.text, tmp_path)


@pytest.mark.parametrize("page", user_pages(), ids=lambda it: it.stem)
def test_commands_in_sentences_are_commands(page: Path) -> None:
    for where, text in spans(page):
        try:
            accepted.command(text, is_whole=False)
        except Exception as error:
            raise AssertionError(f"{where}: {text}: {error}") from error


def test_a_webhook_is_believed_as_the_page_says() -> None:
    names: dict[str, Any] = {}
    exec(next(it.text for it in blocks(DOCS / "alarms.md") if it.title == "signature.py"), names)
    header = signature("secret", int(time.time()), b"{}")
    assert names["is_from_rota"](header, b"{}", b"secret")
    assert not names["is_from_rota"](header, b"[]", b"secret")
    assert not names["is_from_rota"](signature("secret", 0, b"{}"), b"{}", b"secret")
