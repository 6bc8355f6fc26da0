"""A private MariaDB server, and fresh databases on it or on a server that was given by its URL."""

import os
import secrets
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import asyncmy

from tests.servers.ports import LOOPBACK
from tests.servers.process import PrivateServer, ServerMissing, run_to_prepare
from tests.servers.sql import run

USER = "rota"
PASSWORD = "rota"
PROTOCOL_10 = 10


class MariadbDatabases:
    """Creates and drops databases on the server behind an administrator's URL."""

    def __init__(self, admin_url: str) -> None:
        self._admin_url = admin_url

    def url(self, database: str) -> str:
        """`mysql://user:password@host:port/database`"""
        return urlsplit(self._admin_url)._replace(path=f"/{database}").geturl()

    async def create_database(self) -> str:
        """Create an empty database with a name of its own and return that name."""
        name = f"rota_test_{secrets.token_hex(6)}"
        await run(self._admin_url, f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return name

    async def drop_database(self, name: str) -> None:
        """Drop the database; first end the connections on it, whose open transactions would make the drop wait."""
        sessions = await run(self._admin_url, f"SELECT id FROM information_schema.processlist WHERE db = '{name}'")
        for (session,) in sessions:
            with suppress(asyncmy.errors.OperationalError):  # it ended by itself
                await run(self._admin_url, f"KILL CONNECTION {session}")
        await run(self._admin_url, f"DROP DATABASE {name}")

    @asynccontextmanager
    async def fresh_database(self) -> AsyncIterator[str]:
        """The URL of a database that exists for the length of the block."""
        name = await self.create_database()
        try:
            yield self.url(name)
        finally:
            await self.drop_database(name)


class MariadbServer(PrivateServer, MariadbDatabases):
    """MariaDB from Debian's package, in a temporary folder."""

    name = "mariadb"

    def __init__(self) -> None:
        PrivateServer.__init__(self)
        MariadbDatabases.__init__(self, f"mysql://{USER}:{PASSWORD}@{LOOPBACK}:{self.port}/")
        self.options: list[str] = []
        """What the server is started with beyond its defaults."""
        self._install, self._server = program("mariadb-install-db"), program("mariadbd")

    def prepare(self, folder: Path) -> None:
        settings = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        own = [f"--datadir={folder / 'data'}", f"--tmpdir={folder}"]
        run_to_prepare([self._install, "--no-defaults", *own, *settings], folder)
        (folder / "init.sql").write_text(
            f"CREATE USER IF NOT EXISTS {USER}@'{LOOPBACK}' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO {USER}@'{LOOPBACK}' WITH GRANT OPTION;\n"
        )

    def command(self, folder: Path) -> Sequence[str | Path]:
        return [
            self._server,
            "--no-defaults",
            f"--datadir={folder / 'data'}",
            f"--tmpdir={folder}",  # a server that starts clears the temporary files of others in a common folder
            f"--init-file={folder / 'init.sql'}",
            f"--socket={folder / 'mariadb.sock'}",
            f"--pid-file={folder / 'mariadb.pid'}",
            f"--bind-address={LOOPBACK}",
            f"--port={self.port}",
            "--skip-name-resolve",
            "--max-connections=200",
            "--innodb-flush-log-at-trx-commit=1",
            "--character-set-server=utf8mb4",
            *self.options,
        ]

    def answers(self) -> bool:
        """Wait for the greeting: the port opens earlier, and a stop signal sent in between is lost."""
        with socket.create_connection((LOOPBACK, self.port), timeout=5) as session:
            return session.recv(5)[4:] == bytes([PROTOCOL_10])


def program(name: str) -> str:
    """The path of a program of the server package; some are in folders that only root has on its path."""
    found = shutil.which(
        name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    )
    if found is None:
        raise ServerMissing("MariaDB")
    return found
