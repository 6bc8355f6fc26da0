"""Encrypted connections to the store: who answers is proven where a CA is given, and nothing is sent as plain text to
a server that cannot encrypt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.clock import SystemClock
from rota.errors import RotaError
from rota.ports import Store
from rota.storage.sql.store import SqlStore
from rota.wiring import open_store
from tests.servers.certificates import Certificates, make_certificates
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[PostgresServer | MariadbServer]:
    made: PostgresServer | MariadbServer
    if request.param == "postgresql":
        made = PostgresServer()
        made.settings = {
            "ssl": "on",
            "ssl_cert_file": str(certificates.cert),
            "ssl_key_file": str(certificates.key),
        }
    else:
        made = MariadbServer()
        made.options = [f"--ssl-cert={certificates.cert}", f"--ssl-key={certificates.key}", "--ssl"]
    with made:
        yield made


async def is_encrypted(store: Store) -> bool:
    assert isinstance(store, SqlStore)
    if store._dialect.name == "postgresql":
        asked = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        return bool(await store._db.read(lambda conn: conn.exec_driver_sql(asked).scalar()))
    asked = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"
    found: Any = await store._db.read(lambda conn: conn.exec_driver_sql(asked).one())
    return bool(found[1])


async def reached(server: Any, options: str, host: str = "127.0.0.1") -> bool:
    url = server.url(await server.create_database()).replace("127.0.0.1", host)
    store = open_store(f"{url}?{options}", SystemClock(), actor="test")
    try:
        return await is_encrypted(store)
    finally:
        await store.close()


async def test_a_server_that_proves_its_name_is_talked_to_in_secret(server: Any, certificates: Certificates) -> None:
    assert await reached(server, f"sslmode=verify-full&sslrootcert={certificates.ca}")
    assert await reached(server, f"sslrootcert={certificates.ca}")
    assert await reached(server, "sslmode=require")
    assert not await reached(server, "sslmode=disable")


async def test_a_server_that_somebody_else_vouches_for_is_refused(
    server: Any, certificates: Certificates, tmp_path: Path
) -> None:
    other = make_certificates(tmp_path / "other")
    with pytest.raises(RotaError):
        await reached(server, f"sslrootcert={other.ca}")


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
async def test_a_server_without_tls_gets_no_word_of_plain_text(kind: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue("postgres_server" if kind == "postgresql" else "mariadb_server")
    with pytest.raises(RotaError):
        await reached(server, "sslmode=require")
