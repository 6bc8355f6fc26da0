"""A private PostgreSQL server, and fresh databases on it or on a server that was given by its URL."""

import asyncio
import secrets
import shutil
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers.ports import LOOPBACK
from tests.servers.process import PrivateServer, ServerMissing, run_to_prepare
from tests.servers.sql import run

USER = "rota"
PROTOCOL_3 = 196608


class PostgresDatabases:
    """Creates and drops databases on the server behind an administrator's URL."""

    def __init__(self, admin_url: str) -> None:
        self._admin_url = admin_url

    def url(self, database: str) -> str:
        """`postgresql://user@host:port/database`"""
        return urlsplit(self._admin_url)._replace(path=f"/{database}").geturl()

    async def create_database(self) -> str:
        """Create an empty database with a name of its own and return that name."""
        name = f"rota_test_{secrets.token_hex(6)}"
        await run(self._admin_url, f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
        return name

    async def drop_database(self, name: str) -> None:
        """Drop the database, ending the connections that are still open on it."""
        await run(self._admin_url, f"DROP DATABASE {name} WITH (FORCE)")

    @asynccontextmanager
    async def fresh_database(self) -> AsyncIterator[str]:
        """The URL of a database that exists for the length of the block."""
        name = await self.create_database()
        try:
            yield self.url(name)
        finally:
            await self.drop_database(name)


class PostgresServer(PrivateServer, PostgresDatabases):
    """PostgreSQL from Debian's package, in a temporary folder."""

    name = "postgres"
    stop_signal = "SIGINT"  # its fast shutdown: ends the sessions and writes a checkpoint

    def __init__(self, *, port: int | None = None) -> None:
        PrivateServer.__init__(self)
        self.port = port or self.port
        PostgresDatabases.__init__(self, f"postgresql://{USER}@{LOOPBACK}:{self.port}/postgres")
        self._programs = programs()
        self.settings: dict[str, str] = {}
        """What the server is started with beyond its defaults."""

    def prepare(self, folder: Path) -> None:
        # --no-sync spares flushing the empty cluster only; the running server flushes as it always does.
        settings = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        run_to_prepare([self._programs / "initdb", "-D", folder / "data", "-U", USER, *settings], folder)

    def command(self, folder: Path) -> Sequence[str | Path]:
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": str(folder),
            "max_connections": "200",
            **self.settings,
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [self._programs / "postgres", "-D", folder / "data", *options]

    def answers(self) -> bool:
        """Ask for a session: a server that is still starting says `E`, one that is ready authenticates, `R`."""
        wish = struct.pack("!i", PROTOCOL_3) + f"user\0{USER}\0database\0postgres\0\0".encode()
        with socket.create_connection((LOOPBACK, self.port), timeout=5) as session:
            session.sendall(struct.pack("!i", len(wish) + 4) + wish)
            return session.recv(1) == b"R"


class PostgresStandby(PostgresServer):
    """A copy of a server that is running, which follows it until it is promoted."""

    name = "standby"

    def __init__(self, primary: PostgresServer, *, port: int | None = None, through: int | None = None) -> None:
        """`through`: the port at which it reaches its primary, if there is something between them."""
        super().__init__(port=port)
        self._source = through or primary.port

    def prepare(self, folder: Path) -> None:
        where = ["-h", LOOPBACK, "-p", str(self._source), "-U", USER]
        settings = ["--no-sync", "--checkpoint=fast", "--write-recovery-conf", "--wal-method=stream"]
        run_to_prepare([self._programs / "pg_basebackup", *where, "-D", folder / "data", *settings], folder)

    def promote(self) -> None:
        """Let it take writes, and return once it does."""
        assert self.folder is not None
        run_to_prepare([self._programs / "pg_ctl", "promote", "-w", "-D", self.folder / "data"], self.folder)


async def wait_for_standby(url: str, mode: str) -> None:
    """Wait until a primary has a standby that it sends everything to: `async`, or `sync` which commits wait for."""
    async with asyncio.timeout(30):
        while [mode] != [str(state) for (state,) in await run(url, "SELECT sync_state FROM pg_stat_replication")]:
            await asyncio.sleep(0.05)


def programs() -> Path:
    """The folder with `initdb` and `postgres`, of the newest version installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3].split(".")[0]))
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        raise ServerMissing("PostgreSQL")
    return found[-1].parent if found else Path(str(on_path)).parent
