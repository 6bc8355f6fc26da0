"""Requests to etcd's HTTP gateway: to whichever endpoint answers, with a token where there is a user.

    ask ──> the endpoint of the moment ──answer──> done
               └── not reached, or no answer and harmless to repeat ──> the next endpoint
               └── no answer ──> CoordinatorUnavailable; whoever asks next asks the next endpoint

The only module that knows aiohttp; none of its errors leaves it.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from typing import TypeVar

import aiohttp
import msgspec

from rota.coordinators.etcd.address import EtcdAddress
from rota.coordinators.etcd.wire import Authenticate, Authenticated, AuthOff, TokenRefused, Unsent, decode, fault_of
from rota.errors import CoordinatorRefused, CoordinatorUnavailable
from rota.model.value import Value

R = TypeVar("R")
CONNECT_S = 1.5
ANSWER_S = 4.0
"""How long an answer is waited for."""
TRY_S = 1.5
"""The same, where another endpoint may be asked instead."""
SILENCE_S = 5.0
"""A stream without a byte for so long is given up: a network that is cut says nothing."""
AUTHENTICATE = "/v3/auth/authenticate"
_OK = 200


class Gateway:
    def __init__(self, address: EtcdAddress) -> None:
        self._address = address
        self._turn = 0
        self._token = ""
        self._http: aiohttp.ClientSession | None = None
        self._closed = False

    async def ask(self, path: str, message: Value, kind: type[R], *, again: bool = False) -> R:
        """Get one answer; `again`: to send the request twice does no harm."""
        body = msgspec.json.encode(message)
        tries = max(2, len(self._address.endpoints))
        seconds = TRY_S if again and len(self._address.endpoints) > 1 else ANSWER_S
        while True:
            tries -= 1
            try:
                return await self._authorised(path, body, kind, seconds)
            except CoordinatorUnavailable as error:
                if not tries or not (again or isinstance(error, Unsent)):
                    raise

    @asynccontextmanager
    async def stream(self, path: str, message: Value, kind: type[R]) -> AsyncIterator[AsyncIterator[R]]:
        """Get answer after answer, until there was none for `SILENCE_S`. Needs a server that has a leader."""
        headers = {**await self._headers(ANSWER_S), "Grpc-Metadata-Hasleader": "true"}
        with self._unless_it_fails() as endpoint:
            async with asyncio.timeout(ANSWER_S):
                response = await self._post(endpoint + path, msgspec.json.encode(message), headers)
            with closing(response):
                async with aclosing(_messages(response, kind)) as messages:
                    yield messages

    async def close(self) -> None:
        self._closed = True
        if self._http is not None:
            await self._http.close()

    def forget_token(self) -> None:
        """Prove anew who we are, before the next request."""
        self._token = ""

    async def _authorised(self, path: str, body: bytes, kind: type[R], seconds: float) -> R:
        try:
            return await self._answer(path, body, kind, seconds, await self._headers(seconds))
        except TokenRefused:  # so it was not done, and may be asked again
            self.forget_token()
            return await self._answer(path, body, kind, seconds, await self._headers(seconds))

    async def _headers(self, seconds: float) -> dict[str, str]:
        if self._address.user and not self._token:
            who = msgspec.json.encode(Authenticate(name=self._address.user, password=self._address.password))
            try:
                self._token = (await self._answer(AUTHENTICATE, who, Authenticated, seconds, {})).token
            except AuthOff:
                return {}
        return {"Authorization": self._token} if self._token else {}

    async def _answer(self, path: str, body: bytes, kind: type[R], seconds: float, headers: dict[str, str]) -> R:
        with self._unless_it_fails() as endpoint:
            async with asyncio.timeout(seconds), await self._post(endpoint + path, body, headers) as response:
                answer = await response.read()
                if response.status != _OK:
                    raise fault_of(response.status, answer)
                return _read(answer, kind)

    async def _post(self, url: str, body: bytes, headers: dict[str, str]) -> aiohttp.ClientResponse:
        if self._closed:
            raise CoordinatorUnavailable("this client is closed")
        if self._http is None:  # not before there is a loop
            connector = aiohttp.TCPConnector(ssl=self._address.tls or True)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
            self._http = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return await self._http.post(url, data=io.BytesIO(body), headers=headers)  # it warns of many plain bytes

    @contextmanager
    def _unless_it_fails(self) -> Iterator[str]:
        """The endpoint of the moment; when it fails, or is given up, it is the turn of the next."""
        turn = self._turn
        endpoint = self._address.endpoints[turn % len(self._address.endpoints)]
        try:
            with _our_errors(endpoint):
                yield endpoint
        except (CoordinatorUnavailable, asyncio.CancelledError):
            if self._turn == turn:  # else another request has found out already
                self._turn += 1
            raise


@contextmanager
def _our_errors(endpoint: str) -> Iterator[None]:
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise CoordinatorRefused(f"the certificate of {endpoint} is not trusted: {error}") from None
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise Unsent(f"etcd at {endpoint} cannot be reached: {error}") from None
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise CoordinatorUnavailable(f"etcd at {endpoint} does not answer: {error!r}") from None


def _read(answer: bytes, kind: type[R]) -> R:
    try:
        return decode(answer, kind)
    except msgspec.DecodeError:
        raise fault_of(_OK, answer) from None


async def _messages(response: aiohttp.ClientResponse, kind: type[R]) -> AsyncGenerator[R, None]:
    """The lines of a stream. They may be longer than any that aiohttp would read."""
    rest = b""
    while True:
        try:
            async with asyncio.timeout(SILENCE_S):
                chunk = await response.content.readany()
        except TimeoutError:
            return
        if response.status != _OK:
            raise fault_of(response.status, chunk)
        if not chunk:
            raise CoordinatorUnavailable("etcd has ended the stream")
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield _read(line, kind)
