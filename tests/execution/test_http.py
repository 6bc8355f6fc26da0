"""Requests: to whom they may go, what they carry, and how much of an answer is taken."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rota.execution.worker import address
from rota.execution.worker.address import is_public, request_target
from rota.execution.worker_protocol import TaskFault
from rota.model import work
from rota.model.states import Outcome
from tests.execution.harness import rig


class Handler(BaseHTTPRequestHandler):
    """A server that remembers what it was asked, and answers as the path says."""

    seen: ClassVar[list[tuple[str, str, dict[str, str], bytes]]] = []
    endless = threading.Event()

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.seen.append((self.command, self.path, dict(self.headers.items()), self.rfile.read(length)))
        kind = self.path.strip("/").partition("?")[0]
        getattr(self, f"answer_{kind}", self.answer_status)()

    do_POST = do_GET  # noqa: N815 - named by the library

    def answer_status(self) -> None:
        words = self.path.strip("/")
        self._answer(int(words) if words.isdigit() else 200, b'{"fine": true}')

    def answer_redirect(self) -> None:
        self.send_response(302)
        self.send_header("Location", "http://169.254.169.254/latest/meta-data")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def answer_endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while not self.endless.is_set():
                self.wfile.write(b"x" * 65536)
        except OSError:
            return

    def answer_drip(self) -> None:
        """One byte now and then, in the head already."""
        try:
            self.wfile.write(b"HTTP/1.0 200 OK\r\nX-Slow: ")
            while not self.endless.wait(0.05):
                self.wfile.write(b"a")
                self.wfile.flush()
        except OSError:
            return

    def answer_silent(self) -> None:
        self.endless.wait(30)

    def answer_binary(self) -> None:
        self._answer(200, bytes(range(256)) * 300)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[str]:
    Handler.seen = []
    Handler.endless = threading.Event()
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads = True
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield f"localhost:{running.server_port}"
    Handler.endless.set()
    running.shutdown()
    thread.join()
    running.server_close()


async def test_a_request_says_for_whom_it_is_made(tmp_path: Path, server: str) -> None:
    async with rig(tmp_path, hosts=(server,)) as runner:
        config = {
            "method": "POST",
            "headers": {"X-Mine": "1", "x-rota-token": "forged", "Authorization": "Bearer t"},
            "body": {"a": [1, "ü"]},
        }
        attempt = runner.request(
            f"http://{server}/path?q=%20", config=config, token=77, attempt=2, idempotency_key="job/2026 ü"
        )
        end = await runner.do(attempt)
        log = runner.log(attempt)
    assert end.outcome is Outcome.SUCCEEDED, end.message
    assert json.loads(end.result or "") == {"status": 200, "body": '{"fine": true}', "truncated": False}
    assert log == b'HTTP 200 OK\n{"fine": true}'
    [(method, path, headers, body)] = Handler.seen
    assert (method, path, json.loads(body)) == ("POST", "/path?q=%20", {"a": [1, "ü"]})
    assert headers == {
        "Host": server,
        "Accept-Encoding": "identity",
        "Content-Length": str(len(body)),
        "Content-Type": "application/json",
        "User-Agent": "rota",
        "X-Mine": "1",
        "Authorization": "Bearer t",
        "X-Rota-Run": str(attempt.run_id),
        "X-Rota-Item": str(attempt.item_id),
        "X-Rota-Token": "77",
        "X-Rota-Attempt": "2",
        "Idempotency-Key": "job/2026%20%C3%BC",
    }


@pytest.mark.parametrize("status", [404, 503])
async def test_an_answer_that_says_no_is_a_failure_named_by_its_status(
    tmp_path: Path, server: str, status: int
) -> None:
    async with rig(tmp_path, hosts=("localhost",)) as runner:
        attempt = runner.request(f"http://{server}/{status}")
        end = await runner.do(attempt)
        assert b'{"fine": true}' in runner.log(attempt)
        assert b"Traceback" not in runner.log(attempt)
    assert (end.outcome, end.cause, end.code) == (Outcome.FAILED, str(status), status)
    assert end.message.startswith(f"answered {status} ")


async def test_redirects_are_not_followed(tmp_path: Path, server: str) -> None:
    async with rig(tmp_path, hosts=(server,)) as runner:
        end = await runner.do(runner.request(f"http://{server}/redirect"))
    assert (end.outcome, end.cause) == (Outcome.FAILED, "302")
    assert "redirects are not followed" in end.message
    assert len(Handler.seen) == 1


async def test_of_an_endless_answer_only_the_beginning_is_taken(tmp_path: Path, server: str) -> None:
    async with rig(tmp_path, hosts=(server,)) as runner:
        attempt = runner.request(f"http://{server}/endless")
        end = await runner.do(attempt)
        log = runner.log(attempt)
    result = json.loads(end.result or "")
    assert (result["status"], result["truncated"], len(result["body"])) == (200, True, 65536)
    assert log.endswith(b"[rota: only the first 65536 bytes of the answer are kept]\n")


async def test_a_binary_answer_is_kept_exactly_in_the_log(tmp_path: Path, server: str) -> None:
    async with rig(tmp_path, hosts=(server,)) as runner:
        attempt = runner.request(f"http://{server}/binary")
        end = await runner.do(attempt)
        assert (bytes(range(256)) * 300)[:65536] in runner.log(attempt)
    assert end.outcome is Outcome.SUCCEEDED
    assert json.loads(end.result or "")["truncated"] is True


@pytest.mark.parametrize("kind", ["drip", "silent"])
async def test_an_answer_that_takes_too_long_is_cut_off_and_the_worker_lives(
    tmp_path: Path, server: str, kind: str
) -> None:
    async with rig(tmp_path, hosts=(server,)) as runner:
        end = await runner.do(runner.request(f"http://{server}/{kind}", timeout_s=0.4, grace_s=10))
        after = await runner.do(runner.request(f"http://{server}/"))
        assert len(runner.runner._process_trees.live) == 1
    assert (end.outcome, end.cause) == (Outcome.TIMED_OUT, "timeout")
    assert after.outcome is Outcome.SUCCEEDED


async def test_a_request_without_a_time_of_its_own_is_cut_off_too_and_the_message_says_when(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "TIMEOUT_S", 0.4)
    async with rig(tmp_path, hosts=(server,)) as runner:
        end = await runner.do(runner.request(f"http://{server}/drip", timeout_s=None, grace_s=10))
    assert (end.outcome, end.cause) == (Outcome.TIMED_OUT, "timeout")
    assert end.message.startswith("did not end within 0.4 s"), end.message


async def test_many_requests_share_a_worker_and_none_waits_for_a_slow_one(tmp_path: Path, server: str) -> None:
    async with rig(tmp_path, hosts=(server,)) as runner:
        slow = runner.request(f"http://{server}/silent", timeout_s=None)
        runner.begin(slow)
        await runner.start(slow)
        ends = await runner.do_all([runner.request(f"http://{server}/") for _ in range(30)])
        assert {end.outcome for end in ends} == {Outcome.SUCCEEDED}
        assert len(runner.runner._process_trees.live) == 1
        runner.runner.cancel([slow.item_id])
        assert (await runner.end(slow)).outcome is Outcome.CANCELLED


REFUSED = [
    "http://127.0.0.1:{port}/",
    "http://localhost:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f.1:{port}/",
    "http://127.1:{port}/",
    "http://0:{port}/",
    "http://[::1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/",
    "http://169.254.169.254/",
    "http://10.0.0.1/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://224.0.0.1/",
    "http://a@127.0.0.1:{port}/",
    "http://a@127.0.0.1:{port}#@ok.example/",
    "http://０１２７.0.0.1:{port}/",
    "http://ok.example\r\nHost: x/",
    "http://ok.example/a b",
    "http://ok.example:99999/",
    "http:///path",
    "gopher://127.0.0.1:{port}/",
    "file:///etc/passwd",
    "FTP://127.0.0.1/",
]


async def test_urls_that_must_not_be_called_are_not(tmp_path: Path, server: str) -> None:
    """S16: none of them reaches the server, also when another host is allowed."""
    port = server.rpartition(":")[2]
    async with rig(tmp_path, hosts=("localhost:1", "api.example")) as runner:
        ends = await runner.do_all([runner.request(url.format(port=port)) for url in REFUSED])
    assert [(url, end.message) for url, end in zip(REFUSED, ends, strict=True) if end.cause != "address"] == []
    assert {end.outcome for end in ends} == {Outcome.FAILED}
    assert Handler.seen == []


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("0.0.0.0", False),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.0.2.1", False),
        ("198.18.0.1", False),
        ("255.255.255.255", False),
        ("224.0.0.251", False),
        ("240.0.0.1", False),
        ("::", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("ff02::1", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::a00:1", False),
        ("64:ff9b::5db8:d822", True),
        ("2002:7f00:1::", False),
        ("2002:a00:1::1", False),
        ("2001:0:4136:e378:8000:63bf:f5ff:fffe", False),
        ("fec0::1", False),
        ("192.88.99.1", False),
        ("3fff::1", False),
        ("3fff:fff::1", False),
        ("5f00::1", False),
        ("100::1", False),
        ("100:0:0:1::1", False),
        ("64:ff9b:1::5db8:d822", False),
        ("64:ff9b:1:fffe::1", False),
        ("2002:5db8:d822::1", False),
        ("2001:db8::1", False),
        ("2001:2::1", False),
        ("2001:10::1", False),
        ("2001:1ff:ffff::1", False),
        ("::93.184.216.34", False),
        ("::ffff:0:93.184.216.34", False),
        ("::ffff:192.88.99.1", False),
        ("64:ff9b::c058:6301", False),
        ("0.255.0.1", False),
        ("192.0.0.9", False),
        ("192.0.0.170", False),
        ("198.19.255.255", False),
        ("198.51.100.7", False),
        ("203.0.113.7", False),
        ("239.1.1.1", False),
        ("100.127.255.255", False),
        ("4000::1", False),
        ("fd12:3456::1", False),
        ("100.128.0.1", True),
        ("172.32.0.1", True),
        ("198.20.0.1", True),
        ("192.88.98.1", True),
        ("2001:200::1", True),
        ("2001:4860:4860::8888", True),
        ("2003::1", True),
        ("2a00:1450:4001::1", True),
        ("3fff:1000::1", True),
    ],
)
def test_an_address_is_public_only_if_all_it_stands_for_is(text: str, public: bool) -> None:
    assert is_public(text) is public


def test_a_name_is_asked_for_once_and_one_private_answer_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """S16: a name server that answers public, then private, or both at once."""
    asked: list[str] = []
    answers = [["93.184.216.34", "127.0.0.1"], ["93.184.216.34"], ["127.0.0.1"]]

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in answers.pop(0)]

    monkeypatch.setattr(address.socket, "getaddrinfo", resolve)
    with pytest.raises(TaskFault, match=r"rebind.example has the address 127.0.0.1, which is not public"):
        request_target("http://rebind.example/", ())
    judged = request_target("http://rebind.example/", ())
    assert judged.addresses == [(socket.AF_INET, ("93.184.216.34", 80))]
    assert len(asked) == 2
