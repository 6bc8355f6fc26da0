"""The channels, each against a real other side: an SMTP server, an HTTP server on loopback, a program."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import secrets
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rota.alarms.channels.channel import CourierSettings
from rota.alarms.channels.courier import ChannelCourier
from rota.alarms.channels.mail import tls_of
from rota.alarms.rules import message
from rota.clock import SystemClock
from rota.errors import Undelivered
from rota.model.alarm import Alarm, AlarmKind, AlarmRule, Channel, ChannelKind, Message
from tests.servers.certificates import make_certificates
from tests.servers.smtp import PASSWORD, Mailbox, mail_server

SECRET = "a-secret-of-this-test"
TEXT = "Lauf 17 von Jörgs 夜間 job failed: exit code 7"


def a_message(count: int = 1, key: str = "k") -> Message:
    at = datetime(2026, 1, 1, 3, tzinfo=UTC)
    kind = AlarmKind.RUN_FAILED
    return message("ops", [Alarm(key=f"{key}{n}", kind=kind, at=at, scope="cluster", text=TEXT) for n in range(count)])


def a_rule(kind: str, *to: str) -> AlarmRule:
    return AlarmRule(name="ops", channel=Channel(kind=ChannelKind(kind), to=to, secret=SECRET))


def courier(tmp_path: Path, **settings: Any) -> ChannelCourier:
    given = {"state_dir": str(tmp_path), "node": "n", "environment": dict(os.environ), **settings}
    return ChannelCourier(CourierSettings(**given), SystemClock())


@pytest.fixture
async def mailbox() -> AsyncIterator[Mailbox]:
    async with mail_server() as box:
        yield box


async def test_a_mail_arrives_in_utf_8_and_the_servers_word_comes_back(mailbox: Mailbox, tmp_path: Path) -> None:
    post = courier(tmp_path, smtp_host="127.0.0.1", smtp_port=mailbox.port, smtp_from="rota@example.com")
    answer = await post.send(a_rule("mail", "ops@example.com"), a_message(7))
    assert "queued as 42" in answer
    (letter,) = mailbox.letters
    assert (letter["From"], letter["To"]) == ("rota@example.com", "ops@example.com")
    assert letter["Subject"] == f"rota: run failed: 7 times, first: {TEXT}"
    text = letter.get_content()
    assert text.count(TEXT) == 5
    assert "and 2 more" in text
    assert letter["Message-ID"] == f"<{a_message(7).id}@example.com>"


async def test_a_mail_server_is_logged_in_to(mailbox: Mailbox, tmp_path: Path) -> None:
    known = {"smtp_host": "127.0.0.1", "smtp_port": mailbox.port, "smtp_user": "rota"}
    rule = a_rule("mail", "ops@example.com")
    await courier(tmp_path, **known, smtp_password=PASSWORD).send(rule, a_message())
    assert (len(mailbox.letters), mailbox.users) == (1, ["rota"])
    with pytest.raises(Undelivered, match=r"(?i)auth"):
        await courier(tmp_path, **known, smtp_password="wrong").send(rule, a_message())
    assert len(mailbox.letters) == 1


async def test_a_mail_server_is_logged_in_to_in_secret(tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "tls")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.cert, made.key)
    async with mail_server(context) as box:
        known = {"smtp_host": "127.0.0.1", "smtp_port": box.port, "smtp_user": "rota", "smtp_password": PASSWORD}
        rule = a_rule("mail", "ops@example.com")
        await courier(tmp_path, **known, smtp_tls="starttls", smtp_ca=str(made.ca)).send(rule, a_message())
        assert (len(box.letters), box.users) == (1, ["rota"])
        with pytest.raises(Undelivered, match=r"(?i)certificate"):
            await courier(tmp_path, **known, smtp_tls="starttls").send(rule, a_message())
        assert len(box.letters) == 1


@pytest.mark.parametrize(
    ("settings", "tls"),
    [
        ({}, "none"),
        ({"smtp_password": "x"}, "starttls"),
        ({"smtp_password": "x", "smtp_host": "127.0.0.1"}, "none"),
        ({"smtp_password": "x", "smtp_tls": "tls"}, "tls"),
        ({"smtp_tls": "none"}, "none"),
    ],
)
def test_a_password_leaves_this_host_in_secret(settings: dict[str, str], tls: str) -> None:
    assert tls_of(CourierSettings(**{"smtp_host": "mail.example.com", **settings})) == tls


def test_a_password_is_never_sent_as_plain_text_to_another_host() -> None:
    settings = CourierSettings(smtp_host="mail.example.com", smtp_password="s3cret", smtp_tls="none")
    with pytest.raises(Undelivered, match="plain text") as refused:
        tls_of(settings)
    assert "s3cret" not in str(refused.value)


async def test_a_mail_that_is_refused_is_undelivered_with_the_reason(mailbox: Mailbox, tmp_path: Path) -> None:
    post = courier(tmp_path, smtp_host="127.0.0.1", smtp_port=mailbox.port)
    with pytest.raises(Undelivered, match="no such user here"):
        await post.send(a_rule("mail", "nobody@example.com"), a_message())
    assert mailbox.letters == []
    with pytest.raises(Undelivered, match="smtp_host"):
        await courier(tmp_path).send(a_rule("mail", "ops@example.com"), a_message())


async def test_a_line_break_in_a_text_makes_no_header(mailbox: Mailbox, tmp_path: Path) -> None:
    post = courier(tmp_path, smtp_host="127.0.0.1", smtp_port=mailbox.port)
    alarm = Alarm(
        key="k", kind=AlarmKind.RUN_FAILED, at=datetime(2026, 1, 1, tzinfo=UTC), text="x\r\nBcc: spy@example.com"
    )
    await post.send(a_rule("mail", "ops@example.com"), message("ops", [alarm]))
    (letter,) = mailbox.letters
    assert "Bcc" not in letter
    assert letter["Subject"] == "rota: run failed: x Bcc: spy@example.com"


class Request(NamedTuple):
    head: dict[str, str]
    body: bytes


class Hook:
    """An HTTP server that answers as it is told, or not at all."""

    def __init__(self, answer: bytes | None) -> None:
        self._answer = answer
        self.got: list[Request] = []
        self.port = 0
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        finally:
            self.ended.set()
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        head = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
        self.got.append(Request({"": first, **head}, await reader.readexactly(int(head["content-length"]))))
        if self._answer is not None:
            writer.write(self._answer)
            await writer.drain()
        else:
            await reader.read()


@asynccontextmanager
async def a_hook(answer: bytes | None = b"HTTP/1.1 204 No Content\r\n\r\n") -> AsyncIterator[Hook]:
    hook = Hook(answer)
    server = await asyncio.start_server(hook.serve, "127.0.0.1", 0)
    hook.port = server.sockets[0].getsockname()[1]
    try:
        yield hook
    finally:
        server.close()
        await server.wait_closed()


async def test_a_webhook_gets_json_with_a_signature_that_can_be_checked(tmp_path: Path) -> None:
    async with a_hook() as hook:
        post = courier(tmp_path, hosts=(f"127.0.0.1:{hook.port}",))
        answer = await post.send(a_rule("webhook", f"http://127.0.0.1:{hook.port}/alarms?x=1"), a_message(3))
    assert answer == "HTTP/1.1 204 No Content"
    (request,) = hook.got
    assert request.head[""] == "POST /alarms?x=1 HTTP/1.1"
    body = json.loads(request.body)
    assert (body["kind"], body["count"], body["rule"]) == ("run_failed", 3, "ops")
    assert [it["text"] for it in body["first"]] == [TEXT] * 3
    assert request.head["x-rota-message"] == body["id"]
    stamp, _, signed = request.head["x-rota-signature"].partition(",")
    at_s = stamp.removeprefix("t=")
    assert abs(int(at_s) - datetime.now(UTC).timestamp()) < 60
    right = hmac.new(SECRET.encode(), f"{at_s}.".encode() + request.body, hashlib.sha256).hexdigest()
    assert signed == f"v1={right}"


async def test_a_private_address_is_called_only_if_it_is_allowed_by_name(tmp_path: Path) -> None:
    async with a_hook() as hook:
        for hosts in ((), ("localhost",), (f"127.0.0.1:{hook.port + 1}",)):
            with pytest.raises(Undelivered, match=r"not public.*alarm\.hosts"):
                await courier(tmp_path, hosts=hosts).send(
                    a_rule("webhook", f"http://127.0.0.1:{hook.port}/"), a_message()
                )
    assert hook.got == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 500 Oh No\r\n\r\n", "500 Oh No"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://example.com\r\n\r\n", "302 Found"),
        (b"SSH-2.0-hello\r\n", "SSH-2.0"),
        (b"", "not HTTP"),
        (b"x" * 100_000, "not HTTP"),
    ],
)
async def test_a_webhook_that_does_not_say_yes_is_undelivered(tmp_path: Path, answer: bytes, reason: str) -> None:
    async with a_hook(answer) as hook:
        post = courier(tmp_path, hosts=("127.0.0.1",))
        with pytest.raises(Undelivered, match=reason):
            await post.send(a_rule("webhook", f"http://127.0.0.1:{hook.port}/"), a_message())


async def test_a_webhook_that_hangs_is_cut_off(tmp_path: Path) -> None:
    async with a_hook(None) as hook:
        post = courier(tmp_path, hosts=("127.0.0.1",), send_s=3.0)
        with pytest.raises(Undelivered, match=r"no answer within 3 s"):
            await post.send(a_rule("webhook", f"http://127.0.0.1:{hook.port}/"), a_message())
        await asyncio.wait_for(hook.ended.wait(), 30)


async def test_a_webhook_that_answers_drop_by_drop_is_cut_off(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError):
                while True:
                    writer.write(b"H")
                    await writer.drain()
                    await asyncio.sleep(0.02)
        finally:
            ended.set()
            writer.close()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        post = courier(tmp_path, hosts=("127.0.0.1",), send_s=3.0)
        with pytest.raises(Undelivered, match=r"no answer within 3 s"):
            await post.send(a_rule("webhook", f"http://127.0.0.1:{port}/"), a_message())
        await asyncio.wait_for(ended.wait(), 30)


async def test_nobody_listening_is_undelivered(tmp_path: Path) -> None:
    post = courier(tmp_path, hosts=("127.0.0.1",))
    with socket.socket() as taken:  # so that nobody else listens there meanwhile
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(Undelivered, match="Connect"):
            await post.send(a_rule("webhook", f"http://127.0.0.1:{taken.getsockname()[1]}/"), a_message())


async def test_a_command_gets_the_message_on_its_input_and_no_shell_sees_it(tmp_path: Path) -> None:
    script = "import sys, json; d = json.load(sys.stdin); print(d['kind'], d['count'], sys.argv[1:])"
    rule = a_rule("command", sys.executable, "-c", script, "$(id)", "; true")
    answer = await courier(tmp_path).send(rule, a_message(2))
    assert answer == "exit code 0: run_failed 2 ['$(id)', '; true']"


async def test_a_command_does_not_begin_in_the_folder_of_the_node(tmp_path: Path) -> None:
    assert await courier(tmp_path).send(a_rule("command", "pwd"), a_message()) == "exit code 0: /"


async def test_a_large_message_and_a_program_that_reads_nothing_are_no_trouble(tmp_path: Path) -> None:
    alarm = Alarm(key="k", kind=AlarmKind.RUN_FAILED, at=datetime(2026, 1, 1, tzinfo=UTC), text="x" * 3_000_000)
    big = message("ops", [alarm])
    assert await courier(tmp_path).send(a_rule("command", "true"), big) == "exit code 0"
    counted = a_rule("command", sys.executable, "-c", "import sys; print(len(sys.stdin.read()) > 3_000_000)")
    assert await courier(tmp_path).send(counted, big) == "exit code 0: True"


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (("sh", "-c", "echo no way; exit 3"), "exit code 3: no way"),
        (("sh", "-c", "kill -9 $$"), "ended by signal 9"),
        (("/no/such/program",), "cannot execute '/no/such/program': No such file"),
    ],
)
async def test_a_command_that_fails_is_undelivered(tmp_path: Path, argv: tuple[str, ...], reason: str) -> None:
    with pytest.raises(Undelivered, match=reason):
        await courier(tmp_path).send(a_rule("command", *argv), a_message())


async def test_a_command_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    own = a_message(key=secrets.token_hex(8))  # the same tests may run beside this one
    script = f"echo $$ >> {pids}; setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' & wait; sleep 1000"
    with pytest.raises(Undelivered, match=r"no answer within|took too long"):
        await courier(tmp_path, send_s=15.0).send(a_rule("command", "sh", "-c", script), own)
    assert len(pids.read_text().split()) == 2, "void: it had not started anything"
    assert left_by(own.id) == []
    assert records(tmp_path) == []


def records(folder: Path) -> list[str]:
    return [it.name for it in folder.iterdir() if it.name.startswith("agent-")]


def left_by(message_id: str) -> list[str]:
    """The processes that have the mark of a message in their environment."""
    mark = b"ROTA_MESSAGE=" + message_id.encode()
    return [it.parent.name for it in Path("/proc").glob("[0-9]*/environ") if mark in _read(it)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
