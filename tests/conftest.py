"""Fixtures that every kind of test shares: the servers, each started when a test first asks for it."""

import os
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

from tests.e2e.snapshot import REWRITE
from tests.servers.etcd import EtcdServer
from tests.servers.mariadb import MariadbDatabases, MariadbServer
from tests.servers.postgres import PostgresDatabases, PostgresServer
from tests.servers.process import PrivateServer, ServerMissing
from tests.servers.zookeeper import ZooKeeperServer

settings.register_profile("rota", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rota")  # how long an example takes says something of the machine only


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(REWRITE, action="store_true", help="keep what commands print now as what they should print")


PROVED_ON = re.compile("mariadb|etcd", re.IGNORECASE)
PROVED_IN = tuple(Path(__file__).parent / folder for folder in ("contract", "cluster"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Leave the variants on MariaDB and etcd to `make prove`: `make test` tries the same rules on PostgreSQL and
    ZooKeeper, and must be quick enough to be run before every commit. Whatever parametrises them, the id of a variant
    names its server, so that none can be forgotten."""
    for item in items:
        variant = getattr(item, "callspec", None)
        if variant and PROVED_ON.search(variant.id) and any(it in item.path.parents for it in PROVED_IN):
            item.add_marker("prove")


Server = TypeVar("Server", bound=PrivateServer)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresDatabases]:
    """A PostgreSQL server for the whole run. A test that must stop one makes its own `PostgresServer`."""
    given = os.environ.get("ROTA_TEST_POSTGRES_URL")
    if given:
        yield PostgresDatabases(given)
        return
    with installed(PostgresServer) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariadbDatabases]:
    """A MariaDB server for the whole run. A test that must stop one makes its own `MariadbServer`."""
    given = os.environ.get("ROTA_TEST_MARIADB_URL")
    if given:
        yield MariadbDatabases(given)
        return
    with installed(MariadbServer) as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZooKeeperServer]:
    """A ZooKeeper server for the whole run. A test that must stop one makes its own `ZooKeeperServer`."""
    with installed(ZooKeeperServer) as server:
        yield server


@pytest.fixture(scope="session")
def etcd_server() -> Iterator[EtcdServer]:
    """An etcd server for the whole run. A test that must stop one makes its own `EtcdServer`."""
    with installed(EtcdServer) as server:
        yield server


@pytest.fixture
async def postgres_url(postgres_server: PostgresDatabases) -> AsyncIterator[str]:
    """The URL of an empty PostgreSQL database that is dropped after the test."""
    async with postgres_server.fresh_database() as url:
        yield url


@pytest.fixture
async def mariadb_url(mariadb_server: MariadbDatabases) -> AsyncIterator[str]:
    """The URL of an empty MariaDB database that is dropped after the test."""
    async with mariadb_server.fresh_database() as url:
        yield url


def installed(kind: type[Server]) -> Server:
    """Make a server, or skip the test if it is not installed; in CI that is a failure, for a skip would go unseen."""
    try:
        return kind()
    except ServerMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))
