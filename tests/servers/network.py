"""A network of its own for a test: hosts that are network namespaces, on one bridge of this machine.

    host a 198.18.N.2 ──┐
    host b 198.18.N.3 ──┴── bridge ── this machine, 198.18.N.1

It needs root and `ip` (Debian: iproute2). The addresses are set aside for benchmarks (RFC 2544): nobody else has them.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


class Host:
    """One host. What is run with `within` before it runs there."""

    def __init__(self, namespace: str, address: str) -> None:
        self.namespace = namespace
        self.address = address

    @property
    def within(self) -> tuple[str, ...]:
        return ("nsenter", f"--net=/run/netns/{self.namespace}")

    def cut_off(self, other: Host) -> None:
        """Nothing goes from this host to the other any more."""
        _ip("-n", self.namespace, "route", "add", "blackhole", f"{other.address}/32")

    def reach(self, other: Host) -> None:
        """End of `cut_off`."""
        _ip("-n", self.namespace, "route", "del", "blackhole", f"{other.address}/32")


class Network:
    """Hosts that reach each other, and this machine under `address`."""

    def __init__(self) -> None:
        self._name = f"rt{os.getpid():x}{random.randrange(256):02x}"[:11]
        self._net = f"198.18.{random.randrange(1, 255)}"
        self.address = f"{self._net}.1"
        self._hosts: list[Host] = []

    def open(self) -> None:
        _ip("link", "add", self._name, "type", "bridge")
        _ip("addr", "add", f"{self.address}/24", "dev", self._name)
        _ip("link", "set", self._name, "up")

    def close(self) -> None:
        for host in self._hosts:
            _ip("netns", "del", host.namespace)
        _ip("link", "del", self._name)

    def host(self) -> Host:
        number = len(self._hosts) + 2
        host = Host(f"{self._name}-{number}", f"{self._net}.{number}")
        near, far = f"{self._name}.{number}", "eth0"
        _ip("netns", "add", host.namespace)
        self._hosts.append(host)
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", host.namespace)
        _ip("link", "set", near, "master", self._name, "up")
        _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", far)
        _ip("-n", host.namespace, "link", "set", far, "up")
        _ip("-n", host.namespace, "link", "set", "lo", "up")
        return host


@contextmanager
def a_network() -> Iterator[Network]:
    network = Network()
    network.open()
    try:
        yield network
    finally:
        network.close()


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
