"""Http: a request to a URL, made by a worker process of our own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from rota.definitions.characters import is_plain
from rota.definitions.params import json
from rota.definitions.report import listed, shown, suggestion
from rota.execution.kinds.kind import Problems, StoppableCall, WorkerFunction, WorkerKind, count_of, read_mapping
from rota.model import work
from rota.model.value import Json

URL_MAX = 2048
HEADERS_MAX = 100
HEADER_MAX = 8192
REQUESTS_MAX = 32
"""How many requests of a tenant one worker makes at a time."""

_host = re.compile(r"(?!-)[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
_header = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_RESERVED = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "keep-alive", "expect"}
)


class Method(StrEnum):
    GET = "GET"
    HEAD = "HEAD"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


BODILESS = (Method.GET, Method.HEAD)


class HttpKind(WorkerKind):
    """`http: {url: https://example.com/report}`, with method, headers and body."""

    name = "http"
    keys = ("url", "method", "headers", "body")
    no_process = "a request has no process of its own"
    per_worker = REQUESTS_MAX

    @property
    def timeout_s(self) -> float:
        """A request never takes for ever, however slowly the other side answers."""
        return work.TIMEOUT_S

    def config(self, value: object, problems: Problems) -> dict[str, Json] | None:
        readers = {"url": url, "method": _method, "headers": headers, "body": json}
        found = read_mapping(value, readers, problems, required=["url"])
        if found is None:
            return None
        method, body = found.get("method", Method.GET.value), found.get("body")
        if body is not None and method in BODILESS:
            problems.add(("body",), f"does not go with the method {method}; use POST, PUT, PATCH or DELETE")
        # In this order, and without what says nothing: the digest of a definition must not change between releases.
        config: dict[str, Json] = {"url": found["url"], "method": method}
        config |= {key: found[key] for key in ("headers",) if found.get(key)}
        return config | ({} if body is None else {"body": body})

    def function(self, config: Mapping[str, Json], apps: Mapping[str, str]) -> WorkerFunction:
        return WorkerFunction("")

    def stoppable(self, item: Any, hosts: tuple[str, ...]) -> StoppableCall:
        from rota.execution.worker.http_request import HttpRequest  # only a worker that makes requests needs TLS

        return HttpRequest(item, hosts)


def _method(value: object) -> str:
    words = [str(member) for member in Method]
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"must be one of {listed(words)}, not {shown(value)}{suggestion(value, words)}")
    return str(Method(value))


def url(value: object) -> str:
    """A URL to which a request may go. Whether its address may be reached is decided when it is called."""
    if not isinstance(value, str):
        raise ValueError(f"must be a URL like https://example.com/report, not {shown(value)}")
    if not 1 <= len(value) <= URL_MAX:
        raise ValueError(f"must be a URL of 1 to {URL_MAX} characters, not {len(value)}")
    if not all("!" <= char <= "~" for char in value) or "\\" in value:
        raise ValueError(
            f"must be written in printable ASCII without blanks and backslashes (use %-escapes or punycode), "
            f"not {shown(value)}"
        )
    return _checked_url(value)


def _checked_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise ValueError(f"has a host or port that cannot be: {shown(value)}") from None
    if parts.scheme not in ("http", "https") or "://" not in value:
        raise ValueError(f"must begin with http:// or https://, not {shown(value)}")
    if "@" in parts.netloc:
        raise ValueError("must not hold a user or password (the part before @)")
    host = parts.netloc if port is None else parts.netloc.rpartition(":")[0]
    if port == 0 or not _host.fullmatch(host):
        raise ValueError(f"has no host, or one that cannot be: {shown(value)}")
    if "#" in value:
        raise ValueError("must not hold a fragment (#); it would not be sent")
    return value


def headers(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > HEADERS_MAX:
        raise ValueError(f"must be a mapping of at most {HEADERS_MAX} headers, not {count_of(value)}")
    seen: set[str] = set()
    for name, content in value.items():
        _check_header(name, content)
        if name.lower() in seen:
            raise ValueError(f"the header {name} is given twice (capital and small letters are the same)")
        seen.add(name.lower())
    return {str(name): str(content) for name, content in value.items()}


def _check_header(name: object, content: object) -> None:
    if not isinstance(name, str) or not _header.fullmatch(name):
        raise ValueError(
            f"a header's name must be 1 to 100 letters, digits and any of !#$%&'*+.^_`|~-, not {shown(name)}"
        )
    if name.lower() in _RESERVED:
        raise ValueError(f"the header {name} is reserved; it is set when the request is sent")
    if not isinstance(content, str):
        raise ValueError(f"the header {name} must be text, not {shown(content)}; put it in quotes")
    if not is_plain(content) or len(content) > HEADER_MAX:
        raise ValueError(f"the header {name} must be one line of at most {HEADER_MAX} characters, not {shown(content)}")
