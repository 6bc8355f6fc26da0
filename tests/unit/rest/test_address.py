"""Where a node listens, and what it tells the others: with addresses that every host has."""

from __future__ import annotations

import socket

import pytest

from rota.errors import InvalidInput
from rota.rest.address import Listen, advertised, listen_on, local_address, server_hosts, split_address
from rota.rest.door import Door, app

ELSEWHERE = "192.0.2.7"
"""For a host that reaches its store by another than the loopback interface."""


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("sqlite:///rota.db", ()),
        ("memory://", ()),
        ("postgresql://u:p@db.example:5432/rota", ("db.example",)),
        ("postgresql+psycopg://u:p%40x@[2001:db8::1]:5432/rota", ("2001:db8::1",)),
        ("postgresql://u@a:1,b:2,[::1]/rota", ("a", "b", "::1")),
        ("postgresql:///rota?host=/var/run/postgresql", ()),
        ("postgresql:///rota?host=a,b&port=1", ("a", "b")),
        ("mysql://u:p@10.0.0.1/rota", ("10.0.0.1",)),
        ("zookeeper://a:2181,b:2181", ("a", "b")),
        ("etcd://localhost:2379", ("localhost",)),
        ("", ()),
    ],
)
def test_the_hosts_that_all_nodes_reach_are_those_of_their_servers(url: str, hosts: tuple[str, ...]) -> None:
    assert server_hosts(url) == hosts


def test_a_node_whose_servers_are_on_its_host_listens_on_loopback() -> None:
    for hosts in ((), ("localhost",), ("127.0.0.1",), ("no-such-host.invalid",)):
        assert local_address(hosts) in ("127.0.0.1", "::1")
    assert listen_on("", "127.0.0.1") == Listen("127.0.0.1", 7700, asked=False)
    assert listen_on("", ELSEWHERE) == Listen(ELSEWHERE, 7700, asked=False)
    assert listen_on("0.0.0.0:80", ELSEWHERE) == Listen("0.0.0.0", 80, asked=True)


@pytest.mark.parametrize(
    ("listen", "advertise", "host", "local", "address"),
    [
        ("", "", "127.0.0.1", "127.0.0.1", "127.0.0.1:4711"),
        ("", "", ELSEWHERE, ELSEWHERE, f"{ELSEWHERE}:4711"),
        ("0.0.0.0:0", "", "0.0.0.0", ELSEWHERE, f"{ELSEWHERE}:4711"),
        ("[::]:0", "", "::", "2001:db8::5", "[2001:db8::5]:4711"),
        ("", "192.0.2.9:80", "127.0.0.1", ELSEWHERE, "192.0.2.9:80"),
        ("", "192.0.2.9", ELSEWHERE, ELSEWHERE, "192.0.2.9:4711"),
        ("", "2001:db8::9", ELSEWHERE, ELSEWHERE, "[2001:db8::9]:4711"),
        ("", "[2001:db8::9]", ELSEWHERE, ELSEWHERE, "[2001:db8::9]:4711"),
        ("", "[2001:db8::9]:80", ELSEWHERE, ELSEWHERE, "[2001:db8::9]:80"),
        ("", "localhost:80", "127.0.0.1", "127.0.0.1", "localhost:80"),
    ],
)
def test_what_is_advertised(listen: str, advertise: str, host: str, local: str, address: str) -> None:
    assert advertised(listen, advertise, host, 4711, local) == address


@pytest.mark.parametrize(
    ("listen", "advertise", "host", "reason"),
    [
        ("127.0.0.1:7700", "", "127.0.0.1", "node.listen: 127.0.0.1 is reached from this host only"),
        ("[::1]:7700", "", "::1", "node.listen: ::1 is reached from this host only"),
        ("0.0.0.0:7700", "localhost", "0.0.0.0", "node.advertise: localhost is reached from this host only"),
        ("", "127.5.5.5:7700", ELSEWHERE, "node.advertise: 127.5.5.5 is reached from this host only"),
        ("", "0.0.0.0:7700", ELSEWHERE, "node.advertise: 0.0.0.0 is no address"),
        ("", "[::]:7700", ELSEWHERE, "node.advertise: :: is no address"),
        ("", "224.0.0.1", ELSEWHERE, "node.advertise: 224.0.0.1 is no address"),
        ("", "no-such-host.invalid:7700", ELSEWHERE, "node.advertise: no-such-host.invalid is not known"),
        ("", "192.0.2.9:0", ELSEWHERE, "node.advertise: 192.0.2.9:0 has port 0"),
        ("", "192.0.2.9:x", ELSEWHERE, "node.advertise: must be HOST:PORT"),
    ],
)
def test_what_cannot_be_right_is_refused(listen: str, advertise: str, host: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        advertised(listen, advertise, host, 4711, ELSEWHERE)
    assert reason in str(refused.value)


@pytest.mark.parametrize("text", ["", ":7700", "host", "host:", "host:-1", "host:65536", "host:٣"])
def test_an_address_has_a_host_and_a_port(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"must be HOST:PORT"):
        split_address("node.listen", text)


def test_a_port_that_was_asked_for_and_is_taken_is_an_error_and_the_usual_one_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInput, match=rf"127.0.0.1:{port} cannot be listened on"):
            Door(app("a", "1", lambda: 7), f"127.0.0.1:{port}")
    doors = [Door(app("a", "1", lambda: 7)) for _ in range(2)]
    ports = [door._socket.getsockname()[1] for door in doors]
    assert [door.address for door in doors] == [f"127.0.0.1:{port}" for port in ports]
    assert len(set(ports)) == 2
    for door in doors:
        door._socket.close()


def test_a_node_that_listens_on_all_addresses_is_reached_by_both_families() -> None:
    door = Door(app("a", "1", lambda: 7), "[::]:0")
    port = door._socket.getsockname()[1]
    for host in ("127.0.0.1", "::1"):
        socket.create_connection((host, port), timeout=10).close()
    door._socket.close()
