"""Processes that nobody protects, to show that a deed can work: with a password, shared memory and an open port."""

import mmap
import os
import signal
import socket
from contextlib import contextmanager

HOLDERS = ("agent", "zygote", "supervisor", "neighbour")


@contextmanager
def victims():
    """One for each holder, of a session of its own; the first one listens."""
    near, far = os.pipe()
    found = {}
    for name in HOLDERS:
        found[name] = os.fork()
        if found[name] == 0:
            os.close(near)
            try:
                _be_victim(far, name == HOLDERS[0])
            finally:
                os._exit(0)
    os.close(far)
    words = b""
    while more := os.read(near, 100):
        words += more
    os.close(near)
    yield {**found, "port": int(words)}
    for pid in found.values():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _be_victim(tell, listens):
    os.setsid()
    switch = os.memfd_create("switch")
    os.ftruncate(switch, 8)
    shared = mmap.mmap(switch, 8)
    link = socket.socket()
    if listens:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        link.bind(("127.0.0.1", 0))
        link.listen(1)
        os.write(tell, str(link.getsockname()[1]).encode())
        named = socket.socket(socket.AF_UNIX)
        named.bind(b"\0rota-victim")
        named.listen()
    os.close(tell)
    while listens:
        _answer(link.accept()[0])
    signal.pause()
    del shared


def _answer(caller):
    """One after another, however long each takes."""
    said = b""
    while b"\r\n\r\n" not in said:
        more = caller.recv(1000)
        if not more:
            return
        said += more
    caller.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    caller.close()
