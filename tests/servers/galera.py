"""A private Galera cluster: MariaDB servers on loopback that commit together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.servers.mariadb import MariadbServer
from tests.servers.ports import LOOPBACK, free_port
from tests.servers.process import ServerMissing

PROVIDERS = ("/usr/lib/galera/libgalera_smm.so", "/usr/lib/libgalera_smm.so", "/usr/lib64/galera/libgalera_smm.so")


class GaleraMember(MariadbServer):
    """One server of a cluster."""

    name = "galera"
    ready_timeout = 150.0  # it answers once it has a copy of the data from another member

    def __init__(self, number: int, peers: Sequence[GaleraMember]) -> None:
        super().__init__()
        self._number = number
        self._peers = peers
        self.group_port, self._state_port, self._transfer_port = free_port(), free_port(), free_port()
        self.is_first = False
        """Whether it begins a cluster instead of joining one."""

    def command(self, folder: Path) -> Sequence[str | Path]:
        others = [] if self.is_first else [f"{LOOPBACK}:{it.group_port}" for it in self._peers if it is not self]
        provider = ";".join(
            f"{name}={value}"
            for name, value in {
                "gmcast.listen_addr": f"tcp://{LOOPBACK}:{self.group_port}",
                "base_port": self.group_port,
                "ist.recv_addr": f"{LOOPBACK}:{self._state_port}",
                "gcache.size": "32M",
                "evs.keepalive_period": "PT0.5S",
                "evs.inactive_check_period": "PT0.5S",
                "evs.suspect_timeout": "PT2S",
                "evs.inactive_timeout": "PT4S",
            }.items()
        )
        self.options = [
            "--wsrep-on=ON",
            f"--wsrep-provider={_provider()}",
            "--binlog-format=ROW",
            "--default-storage-engine=InnoDB",
            "--innodb-autoinc-lock-mode=2",
            "--innodb-buffer-pool-size=64M",
            "--wsrep-cluster-name=rota",
            f"--wsrep-cluster-address=gcomm://{','.join(others)}",
            f"--wsrep-node-address={LOOPBACK}:{self.group_port}",
            f"--wsrep-node-name=member-{self._number}",
            "--wsrep-sst-method=rsync",
            f"--wsrep-sst-receive-address={LOOPBACK}:{self._transfer_port}",
            f"--wsrep-provider-options={provider}",
        ]
        return super().command(folder)


class GaleraCluster:
    """Three members. `kill` one as a power cut would; it joins again when it is started."""

    def __init__(self, size: int = 3) -> None:
        self.members: list[GaleraMember] = []
        self.members += [GaleraMember(n, self.members) for n in range(size)]

    def __enter__(self) -> Self:
        try:
            for number, member in enumerate(self.members):
                member.is_first = number == 0
                member.start()
                member.is_first = False
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for member in self.members:
            member.close()

    def url(self, database: str, *, first: int = 0) -> str:
        """The database on all members, with one of them named first."""
        order = [*self.members[first:], *self.members[:first]]
        login = order[0].url(database).partition("@")[0]
        return f"{login}@{','.join(f'{LOOPBACK}:{it.port}' for it in order)}/{database}"


def _provider() -> str:
    for path in PROVIDERS:
        if Path(path).exists():
            return path
    raise ServerMissing("Galera (galera-4)")
