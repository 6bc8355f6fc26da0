"""A certificate authority of the tests' own, and certificates for servers on this host, made by `openssl`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.servers.process import server_uid


class Certificates(NamedTuple):
    """The files of an authority and of a server that it vouches for."""

    ca: Path
    cert: Path
    key: Path


def make_certificates(folder: Path, *, name: str = "IP:127.0.0.1,DNS:localhost") -> Certificates:
    """Make both anew; the server's key is readable for the user who runs the servers."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    ca_key, request, names = folder / "ca.key", folder / "server.csr", folder / "names"
    names.write_text(f"subjectAltName={name}\n")
    fresh = ["req", "-newkey", "rsa:2048", "-nodes", "-keyout"]
    _openssl(*fresh, ca_key, "-x509", "-days", "2", "-subj", "/CN=tests of rota", "-out", made.ca)
    _openssl(*fresh, made.key, "-subj", "/CN=a server", "-out", request)
    signer: list[str | Path] = ["-CA", made.ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2", "-extfile", names]
    _openssl("x509", "-req", "-in", request, *signer, "-out", made.cert)
    made.key.chmod(0o600)
    if os.getuid() == 0:
        os.chown(made.key, server_uid(), server_uid())
        for parent in (folder, *folder.parents):
            if parent.stat().st_mode & 0o005 != 0o005 and parent.stat().st_uid == 0:
                parent.chmod(parent.stat().st_mode | 0o055)
    return made


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)
