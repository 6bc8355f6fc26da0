"""What the URL of a database server may say, and what is refused: in words that repeat no password."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from rota.errors import InvalidInput
from rota.storage.sql.connect import read_store_url, tls_of


def tls(url: str) -> ssl.SSLContext | None:
    return tls_of(read_store_url(url, port=5432, form="..."))


def test_several_servers_a_user_and_a_database_are_read() -> None:
    url = read_store_url("postgresql://me:p%40ss@one,two:6000,[::1]:7/rota", port=5432, form="...")
    assert url.hosts == (("one", 5432), ("two", 6000), ("::1", 7))
    assert (url.user, url.password, url.database) == ("me", "p@ss", "rota")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cret@one:abc/rota",
        "postgresql://me:s3cret@one",
        "postgresql://me:s3cret@one,,two/rota",
        "postgresql://me:s3cret@one/a/b",
        "postgresql://me:s3cret@one/rota?nonsense",
        "postgresql://me:s3cret@one/rota?passfile=/etc/passwd",
        "postgresql://me:s3cret@one/rota?sslmode=prefer",
        "postgresql://me:s3cret@one/rota?sslmode=",
        "postgresql://me:s3cret@one/rota?target_session_attrs=any",
    ],
)
def test_what_is_wrong_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_store_url(url, port=5432, form="postgresql://user@host/database")
    assert "s3cret" not in str(refused.value)


def test_on_this_host_text_is_plain_unless_asked_otherwise() -> None:
    assert tls("postgresql:///rota") is None
    assert tls("postgresql://127.0.0.1/rota") is None
    assert tls("postgresql://localhost,[::1]/rota") is None
    assert tls("postgresql://127.0.0.1/rota?sslmode=require") is not None


def test_elsewhere_text_is_plain_only_if_somebody_says_so() -> None:
    for url in ("postgresql://db/rota", "postgresql://127.0.0.1,10.0.0.1/rota"):
        context = tls(url)
        assert context is not None
        assert context.verify_mode is ssl.CERT_NONE
        assert tls(f"{url}?sslmode=disable") is None


def test_a_ca_means_that_the_server_must_prove_its_name(tmp_path: Path) -> None:
    ca = ssl.get_default_verify_paths().cafile
    assert ca is not None
    context = tls(f"postgresql://db/rota?sslrootcert={ca}")
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    only_ca = tls(f"postgresql://db/rota?sslrootcert={ca}&sslmode=verify-ca")
    assert only_ca is not None
    assert (only_ca.verify_mode, only_ca.check_hostname) == (ssl.CERT_REQUIRED, False)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("sslrootcert=/no/such/file", "cannot be used"),
        ("sslcert=/no/such/file", "go together"),
        ("sslmode=disable&sslrootcert=/x", "does not go with"),
    ],
)
def test_certificates_that_cannot_be_used_are_refused(options: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        tls(f"postgresql://db/rota?{options}")
