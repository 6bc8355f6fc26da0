"""A real SMTP server on loopback that keeps what it gets. It refuses letters to `nobody`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

PASSWORD = "right"


class Mailbox:
    """What the server got."""

    def __init__(self) -> None:
        self.port = 0
        self.letters: list[EmailMessage] = []
        self.users: list[str] = []
        self.news = asyncio.Event()

    async def handle_RCPT(  # noqa: N802 - the server's word
        self, server: SMTP, session: Session, envelope: Envelope, to: str, options: list[str]
    ) -> str:
        if to.startswith("nobody@"):
            return "550 no such user here"
        envelope.rcpt_tos.append(to)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - the same
        assert isinstance(envelope.content, bytes)
        letter = message_from_bytes(envelope.content, policy=default)
        assert isinstance(letter, EmailMessage)
        self.letters.append(letter)
        self.news.set()
        return "250 queued as 42"

    def login(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.users.append(data.login.decode())
        return AuthResult(success=data.password == PASSWORD.encode(), handled=False)

    async def until(self, count: int, within_s: float = 60.0) -> list[EmailMessage]:
        """Wait until there are so many letters."""
        async with asyncio.timeout(within_s):
            while len(self.letters) < count:
                self.news.clear()
                await self.news.wait()
        return self.letters


@asynccontextmanager
async def mail_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[Mailbox]:
    """A server, and what it gets. With `tls` it takes nothing before the connection is secret."""
    box = Mailbox()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SMTP(
            box,
            authenticator=box.login,
            auth_require_tls=tls is not None,
            tls_context=tls,
            require_starttls=tls is not None,
            hostname="localhost",
        ),
        "127.0.0.1",
        0,
    )
    box.port = server.sockets[0].getsockname()[1]
    try:
        yield box
    finally:
        server.close()
        await server.wait_closed()
