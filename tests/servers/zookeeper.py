"""A private ZooKeeper server."""

import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from tests.servers.ports import LOOPBACK, free_port
from tests.servers.process import PrivateServer, ServerMissing, run_to_prepare, server_uid

JARS = Path("/usr/share/java")
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
PASSWORD = "secret"  # of the key store, which has to have one
SETTINGS = {
    "tickTime": "250",  # sessions last two to twenty ticks: tests have no time for longer ones
    "maxClientCnxns": "0",
    "admin.enableServer": "false",  # it would want port 8080
    "4lw.commands.whitelist": "srvr",
}


class ZooKeeperServer(PrivateServer):
    """ZooKeeper from Debian's package, alone, in a temporary folder. With `tls` it has a second port, for TLS only."""

    name = "zookeeper"

    def __init__(self, *, tls: bool = False) -> None:
        super().__init__()
        self._java = java()
        self.tls_port = free_port() if tls else None

    @property
    def certificate(self) -> Path:
        """What a server with `tls` shows to its clients; it has signed it itself."""
        assert self.folder is not None
        return self.folder / "cert.pem"

    def prepare(self, folder: Path) -> None:
        data = folder / "data"
        data.mkdir()
        shutil.chown(data, server_uid())
        places = {"dataDir": str(data), "clientPort": str(self.port), "clientPortAddress": LOOPBACK}
        settings = SETTINGS | places | (self._secured(folder) if self.tls_port else {})
        (folder / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def _secured(self, folder: Path) -> dict[str, str]:
        tool: list[str | Path] = [Path(self._java).with_name("keytool")]
        tool += ["-keystore", folder / "keys.p12", "-storepass", PASSWORD]
        making = ["-genkeypair", "-alias", "own", "-keyalg", "EC", "-dname", "CN=test", "-ext", f"SAN=IP:{LOOPBACK}"]
        run_to_prepare([*tool, *making], folder)
        run_to_prepare([*tool, "-exportcert", "-rfc", "-alias", "own", "-file", folder / "cert.pem"], folder)
        return {
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "secureClientPort": str(self.tls_port),
            "secureClientPortAddress": LOOPBACK,
            "ssl.keyStore.location": f"{folder}/keys.p12",
            "ssl.keyStore.password": PASSWORD,
            "ssl.clientAuth": "none",
        }

    def command(self, folder: Path) -> Sequence[str | Path]:
        # Logging goes to the standard error output, where the log of every server is; without a logger there is none.
        # Netty, which serves TLS, needs more of its jars than the package names.
        path = ":".join(f"{JARS}/{jar}.jar" for jar in ("zookeeper", "slf4j-simple", "netty-all", "netty-codec"))
        quiet = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={folder}"]
        return [self._java, *quiet, "-XX:-UsePerfData", "-cp", path, MAIN, folder / "zoo.cfg"]

    def answers(self) -> bool:
        """Ask for its state: before it serves, it says so in other words."""
        with socket.create_connection((LOOPBACK, self.port), timeout=5) as session:
            session.sendall(b"srvr")
            return session.recv(1024).startswith(b"Zookeeper version")


def java() -> str:
    """The program that runs the server."""
    found = shutil.which("java")
    if found is None or not (JARS / "zookeeper.jar").exists():
        raise ServerMissing("ZooKeeper")
    return found
