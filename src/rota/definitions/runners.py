"""What a job runs: the argument list of a program, a Python function, or a request to a URL."""

from __future__ import annotations

import re
from enum import StrEnum
from urllib.parse import urlsplit

from rota.definitions.params import json
from rota.definitions.text import is_plain, is_whole
from rota.definitions.words import shown
from rota.model.value import Json

ARGS_MAX = 1000
ARGS_BYTES_MAX = 128 * 1024
URL_MAX = 2048
HEADERS_MAX = 100
HEADER_MAX = 8192
FUNCTION_MAX = 200

_path = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_function = re.compile(f"{_path}:{_path}")
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


def argv(value: object) -> list[str]:
    """The argument list of a program. It is never given to a shell, so that nothing in it needs to be quoted."""
    if isinstance(value, str):
        raise ValueError('must be a list like ["python", "report.py"], not shell text')
    if not isinstance(value, list) or not 1 <= len(value) <= ARGS_MAX:
        raise ValueError(f"must be a list of 1 to {ARGS_MAX} texts, not {_length(value)}")
    for number, argument in enumerate(value):
        if not isinstance(argument, str):
            raise ValueError(f"argument {number} must be text, not {shown(argument)}; put it in quotes")
        if not is_whole(argument):
            raise ValueError(f"argument {number} must not hold NUL or half characters: {shown(argument)}")
    if not value[0].strip():
        raise ValueError("the program (argument 0) must not be empty")
    if sum(len(argument.encode()) + 1 for argument in value) > ARGS_BYTES_MAX:
        raise ValueError(f"has more than {ARGS_BYTES_MAX} bytes; hand large values over in params or a file")
    return [str(argument) for argument in value]


def function(value: object) -> str:
    """A Python function by name; it is imported where it runs, never here."""
    if not isinstance(value, str) or len(value) > FUNCTION_MAX or not _function.fullmatch(value):
        raise ValueError(f"must be a function like package.module:function, not {shown(value)}")
    return str(value)


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
    """The headers of a request."""
    if not isinstance(value, dict) or len(value) > HEADERS_MAX:
        raise ValueError(f"must be a mapping of at most {HEADERS_MAX} headers, not {_length(value)}")
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


def body(value: object) -> Json:
    """What a request carries: a text as it is, anything else as JSON."""
    return json(value)


def _length(value: object) -> str:
    return str(len(value)) if isinstance(value, list | dict) else shown(value)
