"""A private etcd server of one member."""

import http.client
import json
import shutil
import ssl
from collections.abc import Sequence
from pathlib import Path

from tests.servers.ports import LOOPBACK, free_port
from tests.servers.process import PrivateServer, ServerMissing


class EtcdServer(PrivateServer):
    """etcd from Debian's package, in a temporary folder. Its elections are short, so that a lease may be, too."""

    name = "etcd"

    def __init__(self, *options: str, tls: bool = False) -> None:
        super().__init__()
        program = shutil.which("etcd")
        if program is None:
            raise ServerMissing("etcd")
        self._program = program
        self._options = (*options, "--auto-tls") if tls else options
        self._tls = tls
        self._peer_port = free_port()

    @property
    def certificate(self) -> Path:
        """What a server with `tls` shows to its clients; its key is beside it."""
        assert self.folder is not None
        return self.folder / "data" / "fixtures" / "client" / "cert.pem"

    def prepare(self, folder: Path) -> None:
        """It makes its data by itself."""

    def command(self, folder: Path) -> Sequence[str | Path]:
        client = f"{'https' if self._tls else 'http'}://{LOOPBACK}:{self.port}"
        peer = f"http://{LOOPBACK}:{self._peer_port}"
        settings = {
            "name": "one",
            "data-dir": str(folder / "data"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"one={peer}",
            "heartbeat-interval": "50",
            "election-timeout": "500",
        }
        return [self._program, *(f"--{key}={value}" for key, value in settings.items()), *self._options]

    def answers(self) -> bool:
        """Whether it has a leader, which is itself."""
        connection = self._connection()
        try:
            connection.request("GET", "/health")
            return bool(json.loads(connection.getresponse().read()).get("health") == "true")
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if not self._tls:
            return http.client.HTTPConnection(LOOPBACK, self.port, timeout=5)
        trusting = ssl._create_unverified_context()  # it has signed its certificate itself
        return http.client.HTTPSConnection(LOOPBACK, self.port, timeout=5, context=trusting)
